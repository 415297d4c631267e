"""How long a search takes from start to end, by the way its probes are started.

    python3 benches/wall/run.py GPUTUNE PYTHON [--rounds 3] [--out benches/results/wall.md]

The same search (see SPEC) runs `fresh` and `auto` in turn, in folders of its own, on the scripts of this folder and of
examples/. Its wall time, what it went into, and the speed-up that was found are written as a table: medians over the rounds,
with the smallest and the largest.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(HERE, "..", "..", "examples")

#: The search: eight probes, and what confirms their leaders.
SPEC = """
[step]
command = {command}
adapter = "torch"
start = "{start}"
env = {{ OMP_NUM_THREADS = "1", HF_HUB_OFFLINE = "1" }}

[space]
batch_size = {{ powers_of_two = [4, 64]{batch} }}
workers = {{ values = [0, 1, 2]{workers} }}
precision = {{ values = ["fp32", "bf16"]{precision} }}

[baseline]
batch_size = 8
workers = 0
precision = "fp32"

[search]
probes = 8
"""

#: A script, its folder, its arguments, and whether the hook sets what is searched.
JOBS = {
    "plain PyTorch, slow loader": (
        os.path.join(HERE, "scripts"),
        ["plain.py", "--batch-size", "{batch_size}", "--workers", "{workers}", "--precision", "{precision}"],
        False,
    ),
    "Hugging Face Trainer": (os.path.join(EXAMPLES, "huggingface"), ["train.py"], True),
    "Lightning": (os.path.join(EXAMPLES, "lightning"), ["train.py"], True),
}


def search(gputune, python, job, start):
    """Runs one search; its seconds, what they went into, and the speed-up that was found."""
    source, arguments, is_hooked = JOBS[job]
    targets = ("dataloader.batch_size", "dataloader.num_workers", "torch.precision")
    batch, workers, precision = [f', apply = "{target}"' if is_hooked else "" for target in targets]
    with tempfile.TemporaryDirectory() as folder:
        project = os.path.join(folder, "project")
        shutil.copytree(source, project)
        spec = os.path.join(project, "wall.toml")
        with open(spec, "w", encoding="utf-8") as file:
            command = json.dumps([python, *arguments])
            file.write(SPEC.format(command=command, start=start, batch=batch, workers=workers, precision=precision))
        began = time.perf_counter()
        done = subprocess.run(
            [gputune, "search", spec, "--out", os.path.join(folder, "out")], capture_output=True, text=True, check=False
        )
        seconds = time.perf_counter() - began
        if done.returncode != 0:
            sys.exit(f"{job}, {start}: exit code {done.returncode}\n{done.stderr}")
        with open(os.path.join(folder, "out", "best.json"), encoding="utf-8") as file:
            best = json.load(file)
    return {"seconds": seconds, "speedup": best["speedup"]["value"] if best.get("speedup") else 1.0, **best["measuring"]}


def spread(values, digits):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gputune")
    parser.add_argument("python")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=list(JOBS), action="append")
    parser.add_argument("--out")
    options = parser.parse_args()
    gputune, python = os.path.abspath(options.gputune), os.path.abspath(options.python)
    lines = [
        "| job | start | seconds | speed-up found | importing | starting | warming up | measuring | ending | other |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for job in options.only or JOBS:
        runs = {"fresh": [], "auto": []}
        for _ in range(options.rounds):
            for start, kept in runs.items():
                kept.append(search(gputune, python, job, start))
                print(f"{job}, {start}: {kept[-1]['seconds']:.1f} s", file=sys.stderr, flush=True)
        for start, kept in runs.items():
            spent = [
                [run["spent"][part + "_s"] for run in kept]
                for part in ("importing", "starting", "warming_up", "measuring", "ending")
            ]
            spent.append([run["failing_s"] + run["thinking_s"] for run in kept])
            medians = " | ".join(f"{statistics.median(values):.1f}" for values in spent)
            seconds = spread([run["seconds"] for run in kept], 1)
            found = spread([run["speedup"] for run in kept], 2)
            lines.append(f"| {job} | `{start}` | {seconds} | {found} | {medians} |")
    text = "\n".join(lines) + "\n"
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            file.write(f"# Wall time of a search\n\n`python3 benches/wall/run.py GPUTUNE PYTHON --rounds {options.rounds}`; ")
            file.write("seconds, medians with the smallest and the largest.\n\n" + text)
    print(text)


if __name__ == "__main__":
    main()
