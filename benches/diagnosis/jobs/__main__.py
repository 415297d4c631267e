"""Jobs with known diseases: `list`, `emit`, `check` and `judge` them, and `report` what came of it. README.md.

    python benches/diagnosis/jobs check --half seen
    python benches/diagnosis/jobs judge --half seen --gputune target/release/gputune"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import time
from dataclasses import asdict
from functools import partial
from typing import Any, Callable, Optional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import check  # noqa: E402
import judge  # noqa: E402
import tally  # noqa: E402
from job import Job, Variant, cured, jobs, seeds_of  # noqa: E402
from kinds import SECOND  # noqa: E402
from process import machine, run  # noqa: E402
from truth import HALVES  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[3]


def chosen(options: argparse.Namespace) -> list[Job]:
    half = None if options.half == "both" else options.half
    found = jobs(half, seeds_of(half, options.count, options.first_seed), options.only.split(",") if options.only else None)
    return [job for job in found if job.kind in SECOND] if options.second else found


def known_lines(options: argparse.Namespace) -> list[dict[str, Any]]:
    path = pathlib.Path(options.lines)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def each(options: argparse.Namespace, todo: list[tuple[dict[str, Any], Callable[[], dict[str, Any]]]]) -> list[dict[str, Any]]:
    """Runs what no line has yet; each finished run is a line."""
    lines = known_lines(options)
    for key, measure in todo:
        if any(key.items() <= line.items() for line in lines):
            continue
        began = time.monotonic()
        try:
            found = measure()
        except (RuntimeError, OSError) as error:
            found = {"error": str(error)}
        line = {**key, "at": int(time.time()), **found, "took": round(time.monotonic() - began, 1)}
        lines.append(line)
        with open(options.lines, "a") as file:
            file.write(json.dumps(line) + "\n")
        print(f"{' '.join(str(part) for part in key.values())}: {short(line)}", file=sys.stderr, flush=True)
    return [line for key, _ in todo for line in lines if key.items() <= line.items()]


def short(line: dict[str, Any]) -> str:
    if "error" in line:
        return str(line["error"])
    if "told" in line:
        return str((line["told"]["bottleneck"] or {}).get("cause"))
    return f"{line.get('worth')} {'; '.join(line.get('fails', []))}"


def list_jobs(options: argparse.Namespace) -> None:
    for job in chosen(options):
        print(f"{job.half:9} {job.name:28} {' + '.join(f'{kind.branch}: {kind.cause}' for kind in job.kinds)}")


def emit(options: argparse.Namespace) -> None:
    """Writes one script, or its truth."""
    job = next(iter(jobs(seeds=range(options.seed, options.seed + 1), only=[options.kind])), None)
    if job is None or job.kind.name != options.kind:
        sys.exit(f"error: there is no kind {options.kind}; see `list`")
    variant = Variant(is_set=True) if options.set else cured(*options.cured)
    print(json.dumps(job.truth().record(), indent=1) if options.truth else job.script(variant).source, end="")


def check_jobs(options: argparse.Namespace) -> None:
    """Fails where a job is not what it is said to be."""
    folder = pathlib.Path(options.folder)
    lines = each(options, [({"part": "check", "job": job.name}, partial(check.measure, job, options.python, folder, options.patience))
                           for job in chosen(options)])
    wrong = [line for line in lines if line.get("fails") or "error" in line]
    for line in wrong:
        print(f"{line['job']}: {short(line)}", file=sys.stderr)
    sys.exit(1 if wrong else 0)


def judge_jobs(options: argparse.Namespace) -> None:
    with_what = judge.Options(options.gputune, options.python, pathlib.Path(options.folder), options.time)
    version = version_of(options)
    each(options, [({"part": "judge", "job": job.name, "variant": variant.name, "gputune": version, "number": number},
                    partial(judge.diagnose, job, variant, with_what))
                   for number in range(options.runs) for job in chosen(options) for variant in judge.variants(job)])


def version_of(options: argparse.Namespace) -> str:
    return str(options.label) if options.label else run([options.gputune, "--version"], 10)[1].strip()


def report(options: argparse.Namespace) -> None:
    """Both halves, from lines of `check` and `judge`."""
    lines, found, checks = known_lines(options), [], []
    version = version_of(options)
    for job in chosen(options):
        own = [line for line in lines if line["job"] == job.name]
        measured = next((line for line in own if line["part"] == "check" and "worth" in line), None)
        checks += [measured] if measured else []
        for variant in judge.variants(job):
            found += [judge.judged(job, variant, line, measured and measured["worth"]) for line in own
                      if line["part"] == "judge" and line["variant"] == variant.name and line["gputune"] == version]
    if not found:
        sys.exit(f"error: no line of {options.lines} has a diagnosis by {version}")
    about = {"gputune": version, **machine(options.python), "commands": options.command or shown_commands(options)}
    figures = {half: tally.counts([one for one in found if one.half == half]) for half in HALVES if any(one.half == half for one in found)}
    folder = pathlib.Path(options.results)
    missing = tuple(job.name for job in chosen(options) if job.name not in {one.job for one in found})
    page = tally.page(options.title, about, found, checks, missing)
    (folder / f"{options.name}.md").write_text(page)
    kept = ("job", "rates", "steps", "worth", "fails")
    content = {"about": about, "halves": figures, "not_diagnosed": missing,
               "checks": [{key: line[key] for key in kept} for line in checks], "diagnoses": [asdict(one) for one in found]}
    (folder / f"{options.name}.json").write_text(json.dumps(content, indent=1) + "\n")
    print(page)


def shown_commands(options: argparse.Namespace) -> list[str]:
    """What made the lines, without the paths of this machine."""
    which = f"--half {options.half}" + (f" --count {options.count}" if options.count > 1 else "")
    which += " --second" if options.second else ""
    which += f" --first-seed {options.first_seed}" if options.first_seed is not None else ""
    return [f"python benches/diagnosis/jobs {act} {which}" for act in ("check", "judge", "report")]


def arguments(words: Optional[list[str]] = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = argparse.ArgumentParser(add_help=False)
    which.add_argument("--half", choices=[*HALVES, "both"], default="seen", help="whoever works on rules runs `seen` only")
    which.add_argument("--second", action="store_true", help="of the kinds that are kept out only the second set")
    which.add_argument("--count", type=int, default=1, help="seeds of each kind")
    which.add_argument("--first-seed", type=int, help="another than this half's first")
    which.add_argument("--only", help="kinds whose names begin so: slow,shared")
    run_it = argparse.ArgumentParser(add_help=False, parents=[which])
    run_it.add_argument("--python", default=str(ROOT / "target/python/bin/python"), help="with torch")
    run_it.add_argument("--gputune", default=str(ROOT / "target/release/gputune"))
    run_it.add_argument("--label", help="what to call this gputune, where its version does not say enough")
    run_it.add_argument("--lines", default="jobs.jsonl", help="where each run is appended")
    run_it.add_argument("--folder", default=str(pathlib.Path.home() / ".cache/gputune-jobs"), help="on a disk, for the scripts")
    run_it.add_argument("--time", type=float, default=110, help="seconds that a diagnosis may take")
    run_it.add_argument("--runs", type=int, default=1, help="diagnoses of each job")
    run_it.add_argument("--patience", type=float, default=60, help="seconds that a script may take when it is measured")
    commands = parser.add_subparsers(required=True)
    commands.add_parser("list", parents=[which]).set_defaults(act=list_jobs)
    one = commands.add_parser("emit", help="one script to standard output")
    one.add_argument("kind")
    one.add_argument("--seed", type=int, default=1)
    one.add_argument("--cured", type=int, action="append", default=[], help="the number of a disease: 0 for the first")
    one.add_argument("--set", action="store_true", help="with the parameter that helps")
    one.add_argument("--truth", action="store_true", help="what is known of it, as JSON")
    one.set_defaults(act=emit)
    commands.add_parser("check", parents=[run_it]).set_defaults(act=check_jobs)
    commands.add_parser("judge", parents=[run_it]).set_defaults(act=judge_jobs)
    reports = commands.add_parser("report", parents=[run_it])
    reports.add_argument("--results", default=str(ROOT / "benches/results"))
    reports.add_argument("--name", default="jobs")
    reports.add_argument("--title", default="Whether a diagnosis is right on jobs that nobody has seen")
    reports.add_argument("--command", action="append", help="that made the lines, as the page shows it")
    reports.set_defaults(act=report)
    options = parser.parse_args(words)
    for name in ("python", "gputune"):
        if hasattr(options, name):
            setattr(options, name, str(pathlib.Path(getattr(options, name)).absolute()))
    return options


if __name__ == "__main__":
    options = arguments()
    options.act(options)
