"""Whether a config measures the same live, forked and in a process of its own.

    python3 benches/live/run.py GPUTUNE PYTHON [--only SCRIPT] [--out benches/results/live.md]

Twenty configs of each script are measured in four searches over the whole grid: `fresh` twice, `warm` and `auto`, in which
all configs but the first are live. For each pair with the first fresh search it is counted how many of the twenty agree
within the stated interval: that of the difference of two runs, whose half widths add up in squares, and at least the five
per cent that gputune calls a tie. The second fresh search says what chance alone does.
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
[objective]
minimize = "step_time"  # nothing is given up early
[search]
strategy = "grid"
confirmations = 1
"""

#: Folder, script, and the options that the script has.
SCRIPTS = {
    "plain PyTorch, slow loader": (WALL, "plain.py", (', argument = "--batch-size"', ', argument = "--workers"')),
    "Hugging Face Trainer": (os.path.join(EXAMPLES, "huggingface"), "train.py", ("", "")),
    "Lightning": (os.path.join(EXAMPLES, "lightning"), "train.py", ("", "")),
}
#: What gputune calls a tie at least.
TIE = 0.05


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
    rates = {}
    for trial in trials:
        if trial.get("purpose") in ("baseline", "search") and trial["outcome"] == "measured":
            rate = trial["throughput"]
            half = (rate["high"] - rate["low"]) / 2 / rate["value"] if "high" in rate else 0.0
            rates[tuple(trial["config"].values())] = (rate["value"], half, trial.get("is_live", False))
    return rates


def compare(one, other):
    """How many configs agree, of how many; the median and the largest difference."""
    both = [(one[config], other[config]) for config in one.keys() & other.keys()]
    differences = [(second[0] / first[0] - 1, max(math.hypot(first[1], second[1]), TIE)) for first, second in both]
    agreed = sum(abs(difference) <= width for difference, width in differences)
    sizes = [difference for difference, _ in differences]
    return agreed, len(both), statistics.median(sizes), max(sizes, key=abs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gputune")
    parser.add_argument("python")
    parser.add_argument("--only", choices=list(SCRIPTS), action="append")
    parser.add_argument("--once", action="store_true", help="without the second fresh search")
    parser.add_argument("--out")
    options = parser.parse_args()
    gputune, python = os.path.abspath(options.gputune), os.path.abspath(options.python)
    lines = [
        "| script | against fresh | live configs | agree | median difference | largest |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for script in options.only or SCRIPTS:
        fresh = search(gputune, python, script, "fresh")
        others = [("auto", "auto"), ("warm", "warm"), ("fresh again", "fresh")]
        for name, start in others[: 2 if options.once else 3]:
            rates = search(gputune, python, script, start)
            agreed, count, median, largest = compare(fresh, rates)
            live = sum(is_live for _, _, is_live in rates.values())
            lines.append(f"| {script} | {name} | {live} | {agreed} of {count} | {median:+.1%} | {largest:+.1%} |")
            print(lines[-1], file=sys.stderr, flush=True)
    text = "\n".join(lines) + "\n"
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            file.write("# Live, forked and fresh\n\n`python3 benches/live/run.py GPUTUNE PYTHON`, two cores without a GPU; ")
            file.write("the script says what agrees.\n\n" + text)
    print(text)


if __name__ == "__main__":
    main()
