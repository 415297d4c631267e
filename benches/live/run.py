"""Whether a config measures the same live, forked and in a process of its own.

    python3 benches/live/run.py GPUTUNE PYTHON [--only SCRIPT] [--out benches/results/live.md]

Twenty configs of each script are measured in four searches over the whole grid: `fresh` twice, `warm` and `live`, in which
all configs but the first are live. For each pair with the first fresh search it is counted how many of the twenty agree
within the stated interval: that into which another run falls, as gputune computes it (docs/outcomes.md, "How far runs are
apart"), where the two fresh searches are the repetitions that show how far runs are apart. "fresh again" is what chance alone
does.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
WALL = os.path.join(HERE, "..", "wall", "scripts")
EXAMPLES = os.path.join(HERE, "..", "..", "examples")

SPEC = """
[step]
command = {command}
adapter = "torch"
start = "{start}"
env = {{ OMP_NUM_THREADS = "1", HF_HUB_OFFLINE = "1" }}
[space]
batch_size = {{ powers_of_two = [4, 64], apply = "dataloader.batch_size"{batch} }}
workers = {{ values = [0, 2], apply = "dataloader.num_workers"{workers} }}
precision = {{ values = ["fp32", "bf16"], apply = "torch.precision" }}
[baseline]
batch_size = 8
workers = 0
precision = "fp32"
[limits]
measure_time = "4s"
[objective]
minimize = "step_time"  # nothing is given up early
[search]
strategy = "grid"
rounds = 1
"""

#: Folder, script, and the options that the script has.
SCRIPTS = {
    "plain PyTorch, slow loader": (WALL, "plain.py", (', argument = "--batch-size"', ', argument = "--workers"')),
    "Hugging Face Trainer": (os.path.join(EXAMPLES, "huggingface"), "train.py", ("", "")),
    "Lightning": (os.path.join(EXAMPLES, "lightning"), "train.py", ("", "")),
}
#: What gputune expects of runs on a machine that it does not know: their standard deviation, worth so many repetitions.
PRIOR, PRIOR_DEGREES = 0.03, 2
#: Half the width of a 95 % interval, in standard errors.
NORMAL = 1.96


#: The median seconds until the end of the first step, by script and start: of processes that were started, live ones left out.
STARTS = {}


def is_started(trial):
    return "spent" in trial and not trial.get("is_live", False) and trial["outcome"] == "measured" and trial["trial"] > 1


def search(gputune, python, script, start):
    """The rate of each config with its relative half width, and whether it was measured live."""
    folder, name, (batch, workers) = SCRIPTS[script]
    with tempfile.TemporaryDirectory(prefix="live-") as out:
        spec = os.path.join(out, "live.toml")
        command = json.dumps([python, os.path.join(folder, name)])
        with open(spec, "w", encoding="utf-8") as file:
            file.write(SPEC.format(command=command, start=start, batch=batch, workers=workers))
        words = [gputune, "search", spec, "--out", os.path.join(out, "out")]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{script}, {start}: exit code {done.returncode}\n{done.stderr}")
        print("".join(line + "\n" for line in done.stderr.splitlines() if "process" in line), file=sys.stderr)
        with open(os.path.join(out, "out", "journal.jsonl"), encoding="utf-8") as file:
            trials = [json.loads(line) for line in file]
    starts = [trial["spent"]["importing_s"] + trial["spent"]["starting_s"] for trial in trials if is_started(trial)]
    STARTS[script, start] = statistics.median(starts)
    rates = {}
    for trial in trials:
        if trial.get("purpose") in ("baseline", "search") and trial["outcome"] == "measured":
            rate = trial["throughput"]
            half = (rate["high"] - rate["low"]) / 2 / rate["value"] if "high" in rate else 0.0
            rates[tuple(trial["config"].values())] = (rate["value"], half, trial.get("is_live", False))
    return rates


def pairs(one, other):
    """For each config the difference of the logarithms, and the variance within the two runs."""
    for config in one.keys() & other.keys():
        (first, half, _), (second, other_half, _) = one[config], other[config]
        yield math.log(second / first), (half / NORMAL) ** 2 + (other_half / NORMAL) ** 2


def between_runs(fresh, again):
    """The variance between runs that two fresh searches show, with its degrees of freedom: Paule and Mandel's, with the prior."""
    known = list(pairs(fresh, again))
    degrees = len(known) + PRIOR_DEGREES

    def squares(variance):
        own = sum(difference**2 / (2 * variance + within) for difference, within in known)
        return own + PRIOR_DEGREES * PRIOR**2 / variance

    low, high = 1e-12, 16.0
    for _ in range(100):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if squares(middle) > degrees else (low, middle)
    return high, degrees


def quantile(degrees):
    """Student's two-sided 95 % quantile: Abramowitz and Stegun, 26.7.5; right to three digits from ten degrees on."""
    z = NORMAL
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def compare(one, other, noise):
    """How many configs agree, of how many; the median and the largest difference, and the median interval."""
    variance, degrees = noise
    both = list(pairs(one, other))
    widths = [quantile(degrees) * math.sqrt(2 * variance + within) for _, within in both]
    agreed = sum(abs(difference) <= width for (difference, _), width in zip(both, widths))
    sizes = [math.expm1(difference) for difference, _ in both]
    return agreed, len(both), statistics.median(sizes), max(sizes, key=abs), statistics.median(widths)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gputune")
    parser.add_argument("python")
    parser.add_argument("--only", choices=list(SCRIPTS), action="append")
    parser.add_argument("--out")
    options = parser.parse_args()
    gputune, python = os.path.abspath(options.gputune), os.path.abspath(options.python)
    lines = [
        "| script | against fresh | live configs | agree | interval | median difference | largest |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    ended = []
    for script in options.only or SCRIPTS:
        starts = ("fresh", "live", "warm", "fresh")
        fresh, live, warm, again = (search(gputune, python, script, start) for start in starts)
        noise = between_runs(fresh, again)
        for name, rates in (("live", live), ("warm", warm), ("fresh again", again)):
            agreed, count, median, largest, width = compare(fresh, rates, noise)
            are_live = sum(is_live for _, _, is_live in rates.values())
            agree = f"{agreed} of {count} | ± {width:.1%}"
            lines.append(f"| {script} | {name} | {are_live} | {agree} | {median:+.1%} | {largest:+.1%} |")
            print(lines[-1], file=sys.stderr, flush=True)
        cold, forked = STARTS[script, "fresh"], STARTS[script, "warm"]
        starts = f"{cold:.2f} s fresh, {forked:.2f} s forked: 1/{cold / forked:.0f}"
        ended.append(f"Until the end of the first step, {script}: {starts}.")
        print(ended[-1], file=sys.stderr, flush=True)
    text = "\n".join([*lines, "", *ended]) + "\n"
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            file.write("# Live, forked and fresh\n\n`python3 benches/live/run.py GPUTUNE PYTHON`, two cores without a GPU; ")
            file.write("the script says what agrees.\n\n" + text)
    print(text)


if __name__ == "__main__":
    main()
