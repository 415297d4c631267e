"""How often `gputune diagnose` names the right cause, and whether a remedy brings what was predicted; beside TraceML and loadtune.

    python benches/diagnosis/run.py --gputune target/release/gputune --python target/python/bin/python

Each finished run is appended to a file of lines and not repeated, so the bench can be cut off and started again. README.md."""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import tomllib

import peers.run
import report
from process import end, environment, machine, run

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SICK = ROOT / "examples/sick"
PARTS = ("diagnose", "remedy", "traceml", "loadtune")


class Case(dict):
    """A row of `examples/sick/cases.toml`."""

    def words(self, options, more=()):
        folder = ["--folder", options.folder] if self.get("disk") else []
        return [*self["command"], *folder, *more]

    def command(self, options, more=()):
        python = [options.python]
        if "ranks" in self:
            python += ["-m", "torch.distributed.run", "--nproc-per-node", str(self["ranks"])]
        script, *rest = self.words(options, more)
        return [*python, str(SICK / script), *rest]

    def inside(self, command, options):
        if "inside" not in self:
            return command
        return [options.python, str(SICK / "limited.py"), *self["inside"], "--", *command]

    def missing(self, options):
        """What this machine lacks for it."""
        for need in self.get("needs", []):
            if need == "root":
                lacks = os.geteuid() != 0
            elif need == "gpu":
                lacks = shutil.which("nvidia-smi") is None
            else:
                lacks = run([options.python, "-c", f"import {need}"], 60)[0] != 0
            if lacks:
                return need
        return None


class Beside:
    """The script that runs beside a case, where it has one."""

    def __init__(self, case, options):
        self.command = [options.python, str(SICK / case["beside"][0]), *case["beside"][1:]] if "beside" in case else None

    def __enter__(self):
        if self.command:
            self.process = subprocess.Popen(self.command, start_new_session=True, stdout=subprocess.DEVNULL)
            time.sleep(1)

    def __exit__(self, *_):
        if self.command:
            end(self.process)


def diagnose(case, options):
    out = pathlib.Path(options.folder) / "out"
    command = [options.gputune, "diagnose", "--json", "--quiet", "--out", str(out), "--time", f"{options.time:g}s", "--",
               *case.command(options)]
    with Beside(case, options):
        code, text, error = run(case.inside(command, options), options.time + 60)
    try:
        told = json.loads(text)
    except json.JSONDecodeError:
        return {"error": f"exit {code}: {error[-600:]}"}
    bottleneck = told["bottleneck"] or {"cause": None, "worth": {}}
    return {
        "named": bottleneck["cause"],
        "sureness": told["sureness"],
        "worth": bottleneck["worth"],
        "open": bottleneck.get("open", []),
        "others": [{"cause": other["cause"], "times": other["worth"].get("times")} for other in told["others"]],
        "kind": told["facts"].get("files.kind"),
        "seconds": told["elapsed_s"],
        "told": told,
    }


def rate(case, options, more=()):
    """Samples per second by the script's own word: gputune has no part in it."""
    _, text, error = run(case.command(options, ["--log-seconds", "1", *more]), options.rate_seconds)
    rates = [float(line.split()[-2]) for line in text.splitlines() if line.endswith(" samples/s")]
    ranks = case.get("ranks", 1)
    rates = rates[2 * ranks:]  # the first ones are warm-up
    if not rates:
        raise RuntimeError(error[-600:] or "the script printed no rate in time")
    return sum(rates) / len(rates) * ranks


def remedy(case, options):
    """The script as it is and with each remedy, in turn."""
    found = {"before": rate(case, options)}
    for name in ("setting", "cure"):
        if name in case:
            found[name] = rate(case, options, case[name])
    found["after"] = rate(case, options)
    return found


def main():
    options = arguments()
    pathlib.Path(options.folder).mkdir(parents=True, exist_ok=True)
    lines = pathlib.Path(options.lines)
    known = [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
    version = run([options.gputune, "--version"], 10)[1].strip()
    stop = time.monotonic() + options.minutes * 60
    with open(SICK / "cases.toml", "rb") as file:
        cases = [Case(row) for row in tomllib.load(file)["case"]]
    cases = [case for case in cases if not options.only or any(case["name"].startswith(o) for o in options.only.split(","))]
    for number in range(options.runs):
        for case in cases:
            for part in options.parts.split(","):
                key = {"case": case["name"], "part": part, "number": number}
                if number >= times_of(part, case, options) or any(key.items() <= line.items() for line in known):
                    continue
                if missing := case.missing(options):
                    print(f"{case['name']}: left out, needs {missing}", file=sys.stderr)
                    break
                if time.monotonic() > stop:
                    sys.exit("time is up; the same command goes on from here")
                line = {**key, "gputune": version, "at": int(time.time()), **measure(part, case, options)}
                print(f"{case['name']} {part} {number + 1}: {short(line)}", file=sys.stderr, flush=True)
                known.append(line)
                with open(lines, "a") as file:
                    file.write(json.dumps(line) + "\n")
    if options.results:
        report.write(pathlib.Path(options.results), cases, known, about(options, version))


def times_of(part, case, options):
    if part == "remedy":
        return options.remedies if "setting" in case or "cure" in case else 0
    if part in ("traceml", "loadtune"):
        return 0 if "beside" in case or "inside" in case else 1
    return options.runs


def measure(part, case, options):
    began = time.monotonic()
    try:
        if part == "diagnose":
            found = diagnose(case, options)
        elif part == "remedy":
            found = remedy(case, options)
        else:
            found = peers.run.PEERS[part](case, options, run)
    except (RuntimeError, OSError, ValueError) as error:
        found = {"error": str(error)}
    return {**found, "took": round(time.monotonic() - began, 1)}


def short(line):
    return {key: value for key, value in line.items() if key in ("named", "error", "verdict", "before", "setting", "cure", "after")}


def about(options, version):
    return {"gputune": version, **machine(options.python), "runs": options.runs, "command": shown_command()}


def shown_command():
    """The command without the paths of this machine."""
    words, shown = iter(sys.argv[1:]), ["python benches/diagnosis/run.py"]
    for word in words:
        if word in ("--gputune", "--python", "--peers", "--lines", "--folder", "--results"):
            next(words, None)
        else:
            shown.append(word)
    return " ".join(shown)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gputune", default=str(ROOT / "target/release/gputune"))
    parser.add_argument("--python", default=str(ROOT / "target/python/bin/python"), help="with torch")
    parser.add_argument("--peers", help="folder of programs (bin) where peers/requirements.txt is installed; without it they are left out")
    parser.add_argument("--only", help="cases whose names begin so: slow,small")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--runs", type=int, default=10, help="diagnoses of each case")
    parser.add_argument("--remedies", type=int, default=3, help="times that each remedy is measured")
    parser.add_argument("--time", type=float, default=110, help="seconds that a diagnosis may take")
    parser.add_argument("--rate-seconds", type=float, default=15, help="of a script, to read its rate")
    parser.add_argument("--minutes", type=float, default=1e9, help="no run is begun after these")
    parser.add_argument("--folder", default=str(pathlib.Path.home() / ".cache/gputune-sick"), help="on a disk")
    parser.add_argument("--lines", default="diagnosis.jsonl", help="where each run is appended")
    parser.add_argument("--results", help="folder for diagnosis.md and diagnosis.json")
    options = parser.parse_args()
    options.python = str(pathlib.Path(options.python).absolute())
    options.gputune = str(pathlib.Path(options.gputune).absolute())
    if options.peers is None:
        options.parts = ",".join(part for part in options.parts.split(",") if part not in ("traceml", "loadtune"))
    return options


if __name__ == "__main__":
    main()
