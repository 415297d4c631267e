"""Runs TraceML and loadtune on a sick script, and keeps what they said."""

import json
import os
import pathlib
import re
import shlex
import shutil
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SICK = HERE.parents[2] / "examples/sick"
SECONDS = 90


def traceml(case, options, run):
    """The script as it is, and with TraceML's calls in its loop."""
    found = {}
    for name, script in (("as it is", None), ("with its calls", HERE / "traced.py")):
        folder = tempfile.mkdtemp()
        first, *words = case.words(options, ["--steps", str(steps_of(case))])
        script, words = (SICK / first, words) if script is None else (script, [first, *words])
        ranks = ["--nproc-per-node", str(case["ranks"])] if "ranks" in case else []
        command = [f"{options.peers}/bin/traceml", "run", str(script), "--logs-dir", folder, "--run-name", "run", *ranks,
                   "--args", *words]
        code, text, error = run(command, SECONDS, cwd=folder)
        shutil.rmtree(folder, ignore_errors=True)
        found[name] = said(text + error) or f"nothing (exit {code})"
    return {"verdict": found}


def said(text):
    lines = [line.strip("| ").split("||")[0].strip() for line in text.splitlines()]
    kept = [line for line in lines if re.match(r"(Verdict|Why|Next): ", line)]
    return " ".join(kept)


def steps_of(case):
    """About ten seconds of training."""
    return {"memory_limited": 80, "memory_starved": 80, "communication": 150}.get(case["name"], 250)


def loadtune(case, options, run):
    """The script rewritten as its `Workload`; it makes the loader itself, so it cannot see what the script's loader does wrong."""
    if "ranks" in case:
        return {"verdict": "takes one process only"}
    folder = tempfile.mkdtemp()
    words = case.words(options)
    ask = "import sys, sick; print(sick.parts_of(sys.argv[1:])[0].workers)"
    code, text, error = run([f"{options.peers}/bin/python", "-c", ask, *words], SECONDS, cwd=HERE)
    if code != 0:
        return {"verdict": f"nothing: {last_line(error)}"}
    workers = text.split()[-1]
    os.environ["SICK"] = shlex.join(words)
    command = [f"{options.peers}/bin/loadtune", "tune", str(HERE / "workload.py"), "--workers", workers, "--steps", "60",
               "--warmup", "5", "--repeats", "1", "--save-raw", f"{folder}/raw.json", "--out", f"{folder}/report.md"]
    code, text, error = run(command, 2 * SECONDS, cwd=folder)
    raw = pathlib.Path(folder) / "raw.json"
    verdict = json.loads(raw.read_text())["narrative"] if raw.exists() else f"nothing (exit {code}): {last_line(text + error)}"
    best = re.search(r"best overall: (.*)", text)
    shutil.rmtree(folder, ignore_errors=True)
    return {"verdict": " ".join(verdict.split()), "best": best.group(1) if best else None}


def last_line(text):
    """What an error says, without the places of files on this machine."""
    return (text.strip().splitlines() or [""])[-1]


PEERS = {"traceml": traceml, "loadtune": loadtune}
