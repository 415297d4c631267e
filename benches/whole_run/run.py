"""How well a search predicts the time of the whole training.

    python3 benches/whole_run/run.py --gputune PATH --python PATH --out DIR [--only JOB ...] [--time 100s] [--table]

For each job of `jobs/`: `gputune tune`, then the whole job as it is, then the whole job by `gputune run`. A job that is known in
DIR/results.json is left out. `--table` writes DIR/whole_run.md and measures nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from typing import Any, Optional

HERE = os.path.dirname(os.path.abspath(__file__))
JOBS = ("short_epochs", "long_evaluation", "checkpoints", "streaming", "trainer", "lightning_fit")
#: A prediction counts as right if it is this close, as a share.
CLOSE = 0.1


def whole(command: list[str]) -> float:
    """The seconds of a command from its start to its end."""
    begin = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - begin


def measured(options: argparse.Namespace, job: str) -> dict[str, Any]:
    """Searches for the best config of a job, and runs the job to its end without and with it."""
    script, out = os.path.join(HERE, "jobs", f"{job}.py"), os.path.join(options.out, "gputune-out", job)
    tune = [options.gputune, "tune", "--time", options.time, "-q", "--", options.python, script]
    begin = time.monotonic()
    subprocess.run(tune, check=True, cwd=options.out)
    search_s = time.monotonic() - begin
    with open(os.path.join(out, "best.json"), encoding="utf-8") as file:
        best = json.load(file)
    run: Optional[dict[str, Any]] = best.get("run")
    result = {"verdict": best["verdict"], "settings": best["config"], "search_s": search_s, "predicted": run}
    result["baseline_s"] = whole([options.python, script])
    if best["verdict"] in ("faster", "unproven"):
        steps = (run or {}).get("best_steps")
        more = ["--max-steps", f"{steps:.0f}"] if steps else []
        result["best_s"] = whole([options.gputune, "run", out, "--", options.python, script, *more])
    return result


def table(results: dict[str, Any]) -> str:
    """The results in Markdown."""
    lines = [
        "| job | config | whole run, baseline: predicted, real | with the config: predicted, real | interval holds |",
        "|---|---|---|---|---|",
    ]
    near, count, held, intervals = 0, 0, 0, 0
    for job, result in results.items():
        run = result["predicted"]
        if run is None:
            lines.append(f"| {job} | {result['verdict']} | not predicted, {result['baseline_s']:.1f} s | | |")
            count += 1
            continue
        cells = [(run["baseline_s"], result["baseline_s"])]
        holds = ""
        if "best_s" in result:
            best = run["best_s"]
            cells.append((best["value"], result["best_s"]))
            if best.get("low") is not None and best.get("high") is not None:
                is_held = best["low"] <= result["best_s"] <= best["high"]
                holds = f"{'yes' if is_held else 'no'} ({best['low']:.1f} to {best['high']:.1f} s)"
                held, intervals = held + is_held, intervals + 1
        near += sum(abs(predicted / real - 1) <= CLOSE for predicted, real in cells)
        count += len(cells)
        shown = [f"{predicted:.1f} s, {real:.1f} s ({predicted / real - 1:+.0%})" for predicted, real in cells]
        config = " ".join(f"{name}={json.dumps(value)}" for name, value in result["settings"].items())
        lines.append(f"| {job} | {result['verdict']}: {config} | {' | '.join(shown + [''] * (2 - len(shown)))} | {holds} |")
    lines += ["", f"Predicted within {CLOSE:.0%}: {near} of {count}. The interval holds the real time: {held} of {intervals}."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gputune", required=True, type=os.path.abspath)
    parser.add_argument("--python", type=os.path.abspath, default=sys.executable)
    parser.add_argument("--out", required=True, type=os.path.abspath)
    parser.add_argument("--only", nargs="+", choices=JOBS, default=JOBS)
    parser.add_argument("--time", default="100s")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    path = os.path.join(options.out, "results.json")
    results: dict[str, Any] = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            results = json.load(file)
    for job in () if options.table else options.only:
        if job not in results:
            print(job, file=sys.stderr, flush=True)
            results[job] = measured(options, job)
            with open(path, "w", encoding="utf-8") as file:
                json.dump(results, file, indent=1)
    with open(os.path.join(options.out, "whole_run.md"), "w", encoding="utf-8") as file:
        file.write(table(results))
    print(table(results))


if __name__ == "__main__":
    main()
