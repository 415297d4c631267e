"""How decisive a search is: does it name a faster config in its time, alone and beside a neighbour?

    python3 benches/decisive/run.py --gputune before=PATH --gputune after=PATH --python PATH --out DIR
        [--only slow_loader|equal|equal_no_orders|equal_torch|scripts] [--part searches|truth] [--neighbour yes|no|both]
        [--searches N]

README.md explains the jobs. Each result is appended to DIR/lines.jsonl as it comes. The same command goes on after an
interruption. Tables are written to DIR/table.md and DIR/table.json, also by `--part table`, which measures nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import signal
import statistics
import sys
from typing import Any, Callable, Iterable, Optional, Sequence

from searches import HERE, VARIABLES, Binary, equal, neighbour, search, slow_loader
from slices import Config, Rounds, interleaved, rate, ratio

sys.path.insert(0, os.path.join(HERE, "..", "wall"))

import jobs as wall_jobs  # noqa: E402
import table as wall_table  # noqa: E402
import tools as wall_tools  # noqa: E402
from measure import Window  # noqa: E402

PROBES = 8
TRUE_GAIN = 1.3
NEAR = 0.05
#: A search is over its time if it ends more than this after it.
LATE_S = 1.0
#: The neighbour of a search has a seed of its own; the truth is measured beside others.
SEED_OF_TRUTH = 1_000_000

#: How many searches by default.
JOBS = {"slow_loader": 10, "equal": 40, "equal_no_orders": 40, "equal_torch": 20, "scripts": 2}
#: Seconds that a search may take by default.
LIMITS = {"slow_loader": 90.0, "equal": 25.0, "equal_no_orders": 25.0, "equal_torch": 60.0}
PARTS = ("searches", "truth", "table")

Line = dict[str, Any]


class Kept:
    """The results of a folder: a line of JSON for each."""

    def __init__(self, folder: str) -> None:
        os.makedirs(folder, exist_ok=True)
        self.folder = folder
        self.path = os.path.join(folder, "lines.jsonl")
        self.lines: list[Line] = []
        if os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as file:
                text = file.read()
            for line in text.splitlines():
                try:
                    self.lines.append(json.loads(line))
                except ValueError:
                    pass  # the bench was killed while it wrote this line
            if text and not text.endswith("\n"):
                with open(self.path, "a", encoding="utf-8") as file:
                    file.write("\n")

    def find(self, **key: Any) -> list[Line]:
        """The lines that have all of these members."""
        return [line for line in self.lines if all(line.get(name) == value for name, value in key.items())]

    def result(self, key: dict[str, Any], measure: Callable[[], Any]) -> Any:
        """The kept result with this key, or a new one."""
        known = self.find(**key)
        if known:
            return known[-1]["result"]
        line = {**key, "result": json.loads(json.dumps(measure()))}
        self.lines.append(line)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        return line["result"]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def digest(*names: str) -> str:
    """A hash of files of this folder. A changed script is measured again."""
    found = hashlib.sha256()
    for name in names:
        with open(os.path.join(HERE, name), "rb") as file:
            found.update(file.read())
    return found.hexdigest()[:12]


class Bench:
    """Everything that was asked for, and what is known of it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.kept = Kept(options.out)
        self.binaries = [Binary.from_argument(word) for word in options.gputune]
        self.python = os.path.abspath(options.python) if options.python else ""
        self.neighbours = {"yes": [True], "no": [False], "both": [False, True]}[options.neighbour]
        self.options = options

    def searches(self, job: str) -> int:
        count: int = self.options.searches or JOBS[job]
        return count

    def limit(self, job: str) -> float:
        seconds: float = self.options.time or LIMITS[job]
        return seconds

    def key(self, job: str, binary: Binary, is_beside: bool) -> dict[str, Any]:
        """What the lines of these searches have in common."""
        options = self.options
        space = [options.batch_sizes, options.workers] if job == "slow_loader" else options.variants
        return {
            "kind": "search",
            "job": job,
            "gputune": binary.label,
            "digest": binary.digest,
            "neighbour": is_beside,
            "settings": json.loads(json.dumps([space, options.probes, self.limit(job)])),
            "script": digest("equal.py") if job in ("equal", "equal_no_orders") else digest("slow_loader.py"),
        }

    def spec(self, job: str, seed: int) -> str:
        options, limit = self.options, self.limit(job)
        if job == "slow_loader":
            return slow_loader(self.python, options.batch_sizes, options.workers, options.probes, limit, seed)
        if job == "equal_torch":
            command = [self.python, os.path.join(HERE, "slow_loader.py"), "--variant", "{variant}"]
            return equal(command, True, options.variants, options.probes, limit, seed)
        command = [sys.executable, os.path.join(HERE, "equal.py"), *(["--orders"] if job == "equal" else [])]
        return equal(command, False, options.variants, options.probes, limit, seed)

    def run_searches(self, job: str) -> None:
        """All searches of a job. The builds take turns; each has the same neighbours."""
        for number in range(self.searches(job)):
            for is_beside in self.neighbours:
                turn = number % max(len(self.binaries), 1)
                for binary in self.binaries[turn:] + self.binaries[:turn]:
                    key = {**self.key(job, binary, is_beside), "number": number}
                    folder = os.path.join(
                        os.path.abspath(self.kept.folder),
                        job,
                        f"{binary.label}-{binary.digest}",
                        "neighbour" if is_beside else "quiet",
                        f"{number:03}",
                    )

                    def measure() -> Any:
                        with neighbour(is_beside, seed=1000 * (number + 1)):
                            done = search(binary, self.spec(job, number), folder, self.limit(job))
                        beside = "beside a neighbour" if is_beside else "quiet"
                        say(
                            f"{job} {number}, {binary.label}, {beside}: {done['verdict']} {said(done['speedup'])}, "
                            f"{done['config']}, {tried(done)}, {done['seconds']:.1f} s"
                        )
                        return done

                    self.kept.result(key, measure)

    # The truth of slow_loader.

    @property
    def base(self) -> Config:
        return Config(self.options.batch_sizes[0], self.options.workers[0])

    def truth_key(self, is_beside: bool) -> dict[str, Any]:
        return {
            "neighbour": is_beside,
            "settings": json.loads(json.dumps([self.options.slice, self.options.slices, self.options.most_slices])),
            "script": digest("slow_loader.py"),
        }

    def pair_key(self, config: Config, is_beside: bool) -> dict[str, Any]:
        both = json.loads(json.dumps([self.base, config]))
        return {"kind": "pair", "configs": both, **self.truth_key(is_beside)}

    def grid_key(self) -> dict[str, Any]:
        configs = json.loads(json.dumps(self.grid_configs()))
        return {"kind": "grid", "configs": configs, **self.truth_key(False)}

    def grid_configs(self) -> list[Config]:
        return [Config(size, workers) for size in self.options.batch_sizes for workers in self.options.workers]

    def run_truth(self) -> None:
        """Measures the grid, and each named config against the baseline, beside the same neighbour and quiet."""
        self.kept.result(self.grid_key(), lambda: self.slices(self.grid_configs(), False, self.options.slices))
        named = set()
        for is_beside in self.neighbours:
            for binary in self.binaries:
                for line in self.kept.find(**self.key("slow_loader", binary, is_beside)):
                    config = as_config(line["result"]["config"])
                    if config is not None and config != self.base:
                        named |= {(is_beside, config), (False, config)}
        for is_beside, config in sorted(named):
            key = self.pair_key(config, is_beside)
            self.kept.result(key, lambda: self.slices([self.base, config], is_beside, self.options.most_slices))

    def slices(self, configs: Sequence[Config], is_beside: bool, most: int) -> Rounds:
        def is_enough(rounds: Rounds) -> bool:
            if len(rounds) < self.options.slices:
                return False
            found = ratio(rounds, len(configs) - 1)
            return len(rounds) >= most or math.log(found["high"] / found["low"]) <= 2 * self.options.truth_width

        command = [self.python, os.path.join(HERE, "slow_loader.py")]
        with neighbour(is_beside, SEED_OF_TRUTH):
            rounds = interleaved(command, configs, self.options.slice, is_enough, 0, VARIABLES)
        beside = "beside a neighbour" if is_beside else "quiet"
        for index, config in enumerate(configs[1:], 1):
            say(f"truth, {beside}: {tuple(config)} {said(ratio(rounds, index))} after {len(rounds)} slices each")
        return rounds

    def long_ratio(self, config: Optional[Config], is_beside: bool) -> Optional[dict[str, float]]:
        """The measured truth. The baseline is as fast as itself."""
        if config is None:
            return None
        if config == self.base:
            return {"value": 1.0, "low": 1.0, "high": 1.0}
        known = self.kept.find(**self.pair_key(config, is_beside))
        return ratio(known[-1]["result"], 1) if known else None

    def grid_rates(self) -> dict[Config, float]:
        known = self.kept.find(**self.grid_key())
        if not known:
            return {}
        return {config: rate(known[-1]["result"], index) for index, config in enumerate(self.grid_configs())}

    # Scripts of benches/wall.

    def asked(self, binary: Optional[Binary]) -> wall_tools.Asked:
        return wall_tools.Asked(
            gputune=binary.path if binary else "",
            python=self.python,
            peers=None,
            space=wall_jobs.SMALL if self.options.small else wall_jobs.SPACE,
            probes=self.options.probes,
            window=Window(1.0, self.options.window),
        )

    def script_key(self, kind: str, name: str, binary: Optional[Binary]) -> dict[str, Any]:
        asked = self.asked(binary)
        settings = [asked.space, asked.window] if kind == "script_grid" else [asked.space, asked.probes]
        key: dict[str, Any] = {"kind": kind, "script": name, "settings": json.loads(json.dumps(settings))}
        return {**key, "gputune": binary.label, "digest": binary.digest} if binary else key

    def run_scripts(self) -> None:
        """The searches and the grids of the four scripts, quiet."""
        parts = self.options.part
        for name in self.options.script or wall_jobs.JOBS:
            job = wall_jobs.JOBS[name]
            with wall_tools.Project(job) as made:
                wall_tools.make_data(self.python, job, made)
                if "truth" in parts:
                    for number in range(self.options.grids):
                        key = {**self.script_key("script_grid", name, None), "number": number}
                        self.kept.result(key, lambda: self.in_project(name, made, None, number))
                if "searches" in parts:
                    for number in range(self.searches("scripts")):
                        for binary in self.binaries:
                            key = {**self.script_key("script", name, binary), "number": number}
                            self.kept.result(key, lambda: self.in_project(name, made, binary, number))

    def in_project(self, name: str, made: str, binary: Optional[Binary], number: int) -> dict[str, Any]:
        """A search of one script, or without a build its grid, in a copy of its folder."""
        asked, job = self.asked(binary), wall_jobs.JOBS[name]
        with wall_tools.Project(job, made) as project:
            # Each search has a state folder of its own, so no search learns the noise from another.
            os.environ["XDG_STATE_HOME"] = os.path.join(project, "..", "state")
            try:
                if binary:
                    done = wall_tools.gputune(asked, name, project, number, self.options.start)
                else:
                    done = wall_tools.grid(asked, name, project)
            except RuntimeError as error:
                say(f"{name}: failed: {error}")
                return {"failed": str(error)[-2000:]}
        say(f"{name}, {binary.label if binary else 'grid'}: {done.seconds:.1f} s, {tuple(done.pick)}")
        return done.to_json()


def as_config(config: Optional[dict[str, Any]]) -> Optional[Config]:
    return Config(config["batch_size"], config["workers"]) if config else None


def said(interval: Optional[dict[str, float]]) -> str:
    if not interval:
        return "no speedup"
    return f"{interval['value']:.2f}x ({interval.get('low', 0):.2f}x to {interval.get('high', math.inf):.2f}x)"


def tried(done: Line) -> str:
    alternatives = done.get("alternatives") or {}
    return f"{alternatives.get('tried', '?')} of {alternatives.get('of', '?')} alternatives"


def of(hits: Iterable[bool]) -> str:
    known = list(hits)
    return f"{sum(known)} of {len(known)}"


def spread(values: Sequence[float]) -> str:
    if not values:
        return ""
    return f"{min(values):.0f} / {statistics.median(values):.0f} / {max(values):.0f}"


def is_late(done: Line) -> bool:
    return bool(done["seconds"] > done["limit"] + LATE_S)


def judge(bench: Bench, line: Line, rates: dict[Config, float]) -> Line:
    """A search of slow_loader beside the truth."""
    done, is_beside = line["result"], line["neighbour"]
    config = as_config(done["config"])
    truth, quiet = bench.long_ratio(config, is_beside), bench.long_ratio(config, False)
    interval = done["speedup"] if done["verdict"] == "faster" else None
    holds = overlaps = None
    if interval and truth:
        holds = interval["low"] <= truth["value"] <= interval["high"]
        overlaps = interval["low"] <= truth["high"] and truth["low"] <= interval["high"]
    return {
        "number": line["number"],
        "verdict": done["verdict"],
        "speedup": done["speedup"],
        "config": done["config"],
        "alternatives": done.get("alternatives"),
        "probes": done.get("probes"),
        "rounds": done.get("rounds"),
        "stopped_because": done.get("stopped_because"),
        "seconds": done["seconds"],
        "is_late": is_late(done),
        "long_ratio": truth,
        "long_ratio_quiet": quiet,
        "is_truly_faster": truth["value"] >= TRUE_GAIN if truth else None,
        "interval_holds": holds,
        "interval_overlaps": overlaps,
        "is_near": rates[config] >= (1 - NEAR) * max(rates.values()) if config in rates else None,
    }


def known(judged: Sequence[Line], name: str) -> str:
    """Of the searches about which this is known."""
    return of(bool(each[name]) for each in judged if each[name] is not None)


def slow_loader_table(bench: Bench) -> tuple[list[str], list[Line]]:
    lines = [
        f"| gputune | neighbour | faster | truly {TRUE_GAIN}x or more | over its time | interval holds the long ratio "
        "| or overlaps its interval | wall time, s: min / median / max | within 5% of the grid's best "
        "| alternatives tried |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    rates, rows = bench.grid_rates(), []
    for binary in bench.binaries:
        for is_beside in bench.neighbours:
            found = [
                judge(bench, line, rates) for line in bench.kept.find(**bench.key("slow_loader", binary, is_beside))
            ]
            if not found:
                continue
            counts = [each["alternatives"]["tried"] for each in found if each["alternatives"]]
            cells = [
                binary.label,
                "yes" if is_beside else "no",
                of(each["verdict"] == "faster" for each in found),
                known(found, "is_truly_faster"),
                known(found, "is_late"),
                known(found, "interval_holds"),
                known(found, "interval_overlaps"),
                spread([each["seconds"] for each in found]),
                known(found, "is_near"),
                spread(counts),
            ]
            lines.append(f"| {' | '.join(cells)} |")
            rows.append({"gputune": binary.label, "digest": binary.digest, "neighbour": is_beside, "searches": found})
    return (lines if rows else []), rows


def truth_tables(bench: Bench) -> list[str]:
    """The grid, and the long ratios."""
    lines = []
    rates = bench.grid_rates()
    if rates:
        lines += ["| batch size | workers | samples/s, quiet | over the baseline |", "|--:|--:|--:|--:|"]
        for config, value in rates.items():
            lines.append(f"| {config.batch_size} | {config.workers} | {value:.0f} | {value / rates[bench.base]:.2f}x |")
    pairs = []
    for is_beside in (False, True):
        for config in bench.grid_configs():
            found = bench.kept.find(**bench.pair_key(config, is_beside))
            if found:
                rounds = found[-1]["result"]
                beside, long = "yes" if is_beside else "no", said(ratio(rounds, 1))
                pairs.append(f"| {config.batch_size} | {config.workers} | {beside} | {long} | {len(rounds)} |")
    if pairs:
        lines += ["", "| batch size | workers | neighbour | long ratio to the baseline | slices of each |"]
        lines += ["|--:|--:|---|--:|--:|", *pairs]
    return lines


def equal_table(bench: Bench) -> tuple[list[str], list[Line]]:
    lines = [
        "| job | gputune | neighbour | names a winner | over its time | wall time, s: min / median / max "
        "| alternatives tried |",
        "|---|---|---|--:|--:|--:|--:|",
    ]
    rows = []
    for job in JOBS:
        for binary in bench.binaries:
            for is_beside in bench.neighbours:
                if not job.startswith("equal"):
                    continue
                found = [line["result"] for line in bench.kept.find(**bench.key(job, binary, is_beside))]
                if not found:
                    continue
                counts = [each["alternatives"]["tried"] for each in found if each.get("alternatives")]
                cells = [
                    job,
                    binary.label,
                    "yes" if is_beside else "no",
                    of(each["verdict"] == "faster" for each in found),
                    of(is_late(each) for each in found),
                    spread([each["seconds"] for each in found]),
                    spread(counts),
                ]
                lines.append(f"| {' | '.join(cells)} |")
                rows.append({"job": job, "gputune": binary.label, "neighbour": is_beside, "searches": found})
    return (lines if rows else []), rows


def scripts_table(bench: Bench) -> tuple[list[str], list[Line]]:
    lines = [
        "| script | gputune | searches | seconds until within 5% of the grid's best | seconds in all "
        "| true speedup of the named config |",
        "|---|---|--:|--:|--:|--:|",
    ]
    rows = []
    for name in wall_jobs.JOBS:
        grids = runs_of(bench.kept.find(**bench.script_key("script_grid", name, None)))
        truth = wall_table.Truth(grids) if grids else None
        for binary in bench.binaries:
            runs = runs_of(bench.kept.find(**bench.script_key("script", name, binary)))
            if not runs:
                continue
            near = [truth.seconds_until_near(run) for run in runs] if truth else []
            gains = [truth.speedup(run.pick) for run in runs] if truth else []
            best = f" of {truth.speedup(truth.best):.2f}x" if truth else ""
            cells = [
                name,
                binary.label,
                str(len(runs)),
                wall_table.spread(near, 1) if near else "",
                wall_table.spread([run.seconds for run in runs], 1),
                wall_table.spread(gains, 2) + "x" + best if gains else "",
            ]
            lines.append(f"| {' | '.join(cells)} |")
            picks = [run.pick._asdict() for run in runs]
            seconds = [run.seconds for run in runs]
            until = [None if math.isinf(each) else each for each in near]
            rows.append(
                {
                    "script": name,
                    "gputune": binary.label,
                    "seconds": seconds,
                    "until_near": until,
                    "picks": picks,
                    "speedups": gains,
                }
            )
    return (lines if rows else []), rows


def runs_of(lines: Sequence[Line]) -> list[wall_tools.Run]:
    return [wall_tools.Run.from_json(line["result"]) for line in lines if "failed" not in line["result"]]


def write_tables(bench: Bench) -> str:
    slow, slow_rows = slow_loader_table(bench)
    same, same_rows = equal_table(bench)
    scripts, scripts_rows = scripts_table(bench)
    truth = truth_tables(bench)
    parts = [("A slow loader", slow), ("Its truth", truth), ("All configs the same", same), ("Four scripts", scripts)]
    text = "\n".join(line for title, lines in parts if lines for line in (f"## {title}", "", *lines, ""))
    with open(os.path.join(bench.kept.folder, "table.md"), "w", encoding="utf-8") as file:
        file.write(text)
    rates = [{"config": config._asdict(), "samples_per_second": value} for config, value in bench.grid_rates().items()]
    whole = {
        "slow_loader": slow_rows,
        "grid": rates,
        "equal": same_rows,
        "scripts": scripts_rows,
        "cores": os.cpu_count(),
    }
    with open(os.path.join(bench.kept.folder, "table.json"), "w", encoding="utf-8") as file:
        json.dump(whole, file, indent=1)
    return text


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gputune", action="append", required=True, help="PATH or LABEL=PATH; again for another build")
    parser.add_argument("--python", help="a Python with the frameworks of the scripts")
    parser.add_argument("--out", required=True, help="the folder of the results")
    parser.add_argument("--only", choices=list(JOBS), action="append")
    parser.add_argument("--part", choices=PARTS, action="append", help="all by default; the tables are always written")
    parser.add_argument("--neighbour", choices=("yes", "no", "both"), default="both")
    parser.add_argument("--searches", type=int, help="of each build, with and without the neighbour")
    parser.add_argument("--time", type=float, help="seconds of a search, but for the scripts")
    parser.add_argument("--probes", type=int, default=PROBES)
    parser.add_argument("--batch-sizes", type=numbers, default=[8, 16, 32, 64], help="of slow_loader, baseline first")
    parser.add_argument("--workers", type=numbers, default=[0, 1, 2], help="of slow_loader, baseline first")
    parser.add_argument("--variants", type=int, default=8, help="configs of the equal jobs")
    parser.add_argument("--slice", type=float, default=2.0, help="seconds of a slice")
    parser.add_argument("--slices", type=int, default=20, help="of each config at least")
    parser.add_argument("--most-slices", type=int, default=100, help="of a config and the baseline at most")
    parser.add_argument("--truth-width", type=float, default=0.04, help="half width of the long ratio that is enough")
    parser.add_argument("--script", choices=list(wall_jobs.JOBS), action="append", help="of the four scripts")
    parser.add_argument(
        "--start", choices=("auto", "fresh", "warm", "live"), default="auto", help="of the four scripts"
    )
    parser.add_argument("--grids", type=int, default=1, help="of each of the four scripts")
    parser.add_argument("--window", type=float, default=3.0, help="seconds of measuring in those grids")
    parser.add_argument("--small", action="store_true", help="six configs for the four scripts, to try the bench")
    options = parser.parse_args()
    options.part = options.part or list(PARTS)
    chosen = options.only or list(JOBS)
    needs_python = {"slow_loader", "equal_torch", "scripts"} & set(chosen) and options.part != ["table"]
    if needs_python and not options.python:
        parser.error("these jobs need --python")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    bench = Bench(options)
    try:
        for job in chosen:
            if options.part == ["table"]:
                break
            if job == "scripts":
                bench.run_scripts()
                continue
            if "searches" in options.part:
                bench.run_searches(job)
            if "truth" in options.part and job == "slow_loader":
                bench.run_truth()
    except KeyboardInterrupt:
        say("interrupted: the same command goes on")
    print(write_tables(bench))


if __name__ == "__main__":
    main()
