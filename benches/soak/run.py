"""Whether a long search with forked probes leaks, and what is left when one of its processes is killed.

    python3 benches/soak/run.py leaks GPUTUNE PYTHON [--probes 1000]
    python3 benches/soak/run.py kills GPUTUNE PYTHON [--rounds 100] [--jobs 2]

Both search the small script `train.py` with `start = "warm"`, so that all probes but the first are forks of one zygote.
`leaks` looks every 50 probes at what gputune, the zygote and its supervisor hold, and at what lies about. `kills` ends one
process of each search with SIGKILL, at random, and looks for what survives, what is left, and whether a trial is lost.
What lies about is looked for in a TMPDIR of the search's own, the folder of its results, /dev/shm, the control groups and
the mounts; processes by their session and that TMPDIR, so other searches may run beside it.
"""

import argparse
import collections
import concurrent.futures
import glob
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))

SPEC = """
[step]
command = [{python}, "train.py", "--batch-size", "{{batch_size}}", "--workers", "{{workers}}", "--width", "{{width}}"]
adapter = "torch"
start = "warm"
device = "cpu"
env = {{ OMP_NUM_THREADS = "1" }}

[space]
batch_size = {{ range = [1, 4] }}
workers = {{ values = [0, 1] }}
width = {{ range = [8, 1000] }}

[limits]
measure_time = "{measure}ms"
precision = 0.5

[search]
strategy = "random"
seed = {seed}
probes = {probes}
rounds = 0
time = "10h"
"""

#: What a trial is recorded as that did not fail.
GOOD = "measured"
#: How long what was started may live on, and how long a search of `kills` may take: far more than either needs.
LONGEST_SURVIVAL, LONGEST_SEARCH = 20, 240

Process = collections.namedtuple("Process", "parent session state words")


def processes():
    """All processes, by their number."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                state, parent, _, session = file.read().rpartition(")")[2].split()[:4]
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended
            continue
        found[int(pid)] = Process(int(parent), int(session), state, words)
    return found


class Search:
    """A search in a session of its own, with its folders."""

    def __init__(self, options, folder, probes, measure, seed):
        self.project, self.out = os.path.join(folder, "project"), os.path.join(folder, "out")
        self.temporary, self.log = os.path.join(folder, "tmp"), os.path.join(folder, "log")
        self.options = options
        for made in (self.project, self.temporary):
            os.makedirs(made, exist_ok=True)
        shutil.copy(os.path.join(HERE, "train.py"), self.project)
        with open(os.path.join(self.project, "soak.toml"), "w", encoding="utf-8") as file:
            file.write(SPEC.format(python=json.dumps(options.python), probes=probes, measure=measure, seed=seed))
        self.shared_before = set(os.listdir("/dev/shm"))
        self.seen = set()
        self.go_on()

    def go_on(self):
        command = [self.options.gputune, "search", os.path.join(self.project, "soak.toml"), "--out", self.out]
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "TMPDIR": self.temporary},
                start_new_session=True,
            )
        self.pid = self.child.pid

    def trials(self):
        """The trials in the journal, whole lines only."""
        try:
            with open(os.path.join(self.out, "journal.jsonl"), encoding="utf-8") as file:
                lines = [line for line in file if line.endswith("\n")]
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines if line.startswith('{"trial"')]

    def said(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def roles(self):
        """The processes of the search by what they are; dead ones are left out."""
        every = processes()
        self.seen |= {pid for pid, found in every.items() if found.session == self.pid}
        alive = {pid: found for pid, found in every.items() if found.state not in "ZX"}
        below = collections.defaultdict(list)
        for pid, found in alive.items():
            below[found.parent].append(pid)
        roles = {"gputune": [self.pid] if self.pid in alive else []}
        for name in ("zygote", "supervisor of the zygote", "supervisor of a probe", "script"):
            roles[name] = []
        for child in below[self.pid]:
            words = {pid: alive[pid].words for pid in below[child]}
            zygotes = [pid for pid in words if "start_zygote.py" in words[pid] and "__launch" not in words[pid]]
            roles["supervisor of the zygote" if zygotes else "supervisor of a probe"].append(child)
            roles["zygote"] += zygotes
            probes = [child] if not zygotes else [pid for zygote in zygotes for pid in below[zygote]]
            if zygotes:
                roles["supervisor of a probe"] += probes
            roles["script"] += [pid for probe in probes for pid in below[probe] if "__hold" not in alive[pid].words]
        return roles

    def phase(self, roles):
        if not roles["zygote"]:
            return "forked" if len(self.trials()) > 1 else "fresh"
        return "forked" if roles["supervisor of a probe"] or len(self.trials()) > 1 else "zygote starts"

    def living(self):
        """What lives of the search: in its session, or started with its TMPDIR."""
        mark = f"TMPDIR={self.temporary}".encode()
        found = []
        for pid, process in processes().items():
            if process.state in "ZX":
                continue
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    is_marked = mark in file.read().split(b"\0")
            except OSError:
                is_marked = False
            if process.session == self.pid or is_marked:
                found.append(f"{pid} {process.words}")
        return found

    def left(self):
        """What lies about: files and folders, shared memory, control groups, mounts."""
        found = [os.path.join("TMPDIR", name) for name in os.listdir(self.temporary)]
        found += [os.path.basename(path) for path in glob.glob(os.path.join(self.out, ".gputune-writes-*"))]
        alive = processes()
        for name in set(os.listdir("/dev/shm")) - self.shared_before:
            owner = re.search(r"[_-](\d+)", name)  # others' are theirs as long as they live
            if not (owner and int(owner[1]) in alive and alive[int(owner[1])].session != self.pid):
                found.append("/dev/shm/" + name)
        found += [group for group in self.groups() if int(group.rpartition("-")[2]) not in alive]
        return found + [line for line in mounts("self") if self.out in line or self.temporary in line]

    def groups(self):
        """Control groups of processes that were seen."""
        with open("/proc/mounts", encoding="utf-8") as file:
            places = [line.split()[1] for line in file if line.split()[2] == "cgroup2"]
        found = [path for place in places for path in glob.glob(os.path.join(place, "**", "gputune-*"), recursive=True)]
        return [path for path in found if path.rpartition("-")[2].isdigit() and int(path.rpartition("-")[2]) in self.seen]


def mounts(pid):
    try:
        with open(f"/proc/{pid}/mountinfo", encoding="utf-8") as file:
            return file.read().splitlines()
    except OSError:
        return []


# --- leaks ---------------------------------------------------------------------------------------------------------


def held(pid):
    """What a process holds: resident MiB, descriptors, threads."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        status = dict(line.split(":", 1) for line in file if ":" in line)
    return int(status["VmRSS"].split()[0]) / 1024, len(os.listdir(f"/proc/{pid}/fd")), int(status["Threads"])


def reading(search):
    roles = search.roles()
    row = {}
    for name in ("gputune", "zygote", "supervisor of the zygote"):
        for kind, value in zip(("MiB", "descriptors", "threads"), held(roles[name][0])):
            row[f"{name}: {kind}"] = value
    of_search = [process for process in processes().values() if process.session == search.pid]
    row["processes of the search"] = len(of_search)
    row["zombies of the search"] = sum(process.state == "Z" for process in of_search)
    row["entries of TMPDIR"] = len(os.listdir(search.temporary))
    stores = glob.glob(os.path.join(search.out, ".gputune-writes-*"))
    row["entries of the store of layers"] = sum(len(os.listdir(store)) for store in stores)
    row["files in /dev/shm"] = len(set(os.listdir("/dev/shm")) - search.shared_before)
    row["control groups"] = len(search.groups())
    row["mounts, outside"], row["mounts, of the zygote"] = len(mounts("self")), len(mounts(roles["zygote"][0]))
    return row


def sample(search):
    """The least of 20 readings in two seconds: what is there between and in all probes."""
    rows = []
    for _ in range(20):
        try:
            rows.append(reading(search))
        except (IndexError, KeyError, OSError):  # a process is not there, or has just ended
            pass
        time.sleep(0.1)
    return {name: min(row[name] for row in rows) for name in rows[0]} if rows else None


def slope(points):
    """The slope of a line through the points, and its standard error."""
    xs, ys = zip(*points)
    if len(xs) < 3 or len(set(ys)) == 1:
        return 0.0, 0.0
    middle_x, middle_y = statistics.fmean(xs), statistics.fmean(ys)
    width = sum((x - middle_x) ** 2 for x in xs)
    rise = sum((x - middle_x) * (y - middle_y) for x, y in points) / width
    rest = sum((y - middle_y - rise * (x - middle_x)) ** 2 for x, y in points)
    return rise, (rest / (len(xs) - 2) / width) ** 0.5


def leaks(options):
    folder = tempfile.mkdtemp(prefix="soak-")
    search = Search(options, folder, options.probes + 1, 100, 0)
    began = last = time.monotonic()
    samples, due = [], 50
    while search.child.poll() is None:
        time.sleep(0.1)
        count = len(search.trials()) if time.monotonic() - last > 5 else 0
        if count >= due or (count and time.monotonic() - began > options.longest):
            took = time.monotonic() - last
            row = sample(search)
            if row:
                row["seconds for each probe"] = took / (count - (samples[-1][0] if samples else 0))
                samples.append((count, row))
                print(count, json.dumps(row), file=sys.stderr, flush=True)
            last, due = time.monotonic(), (count // 50 + 1) * 50
            if time.monotonic() - began > options.longest:
                search.child.send_signal(signal.SIGINT)
                search.child.wait()
    code = search.child.wait()
    trials = search.trials()
    forked = re.search(r"(\d+) probes were forked", search.said())
    time.sleep(1)
    survivors, leftovers = search.living(), search.left()
    outcomes = collections.Counter(trial["outcome"] for trial in trials)
    # What gputune holds of the same journal when it reads it anew: that is history, no leak.
    spec = os.path.join(search.project, "soak.toml")
    with open(spec, encoding="utf-8") as file:
        text = file.read()
    with open(spec, "w", encoding="utf-8") as file:
        file.write(re.sub(r"probes = \d+", f"probes = {len(trials) + 4}", text))
    search.go_on()
    anew = 0.0
    while search.child.poll() is None:
        try:
            anew = max(anew, held(search.pid)[0]) if len(search.trials()) < len(trials) + 4 else anew
        except (OSError, KeyError):
            pass
        time.sleep(0.1)
    half = samples[len(samples) // 2 :]
    lines = ["| what | first | middle | last | rise for 1,000 probes, second half | grows |", "|---|--:|--:|--:|--:|---|"]
    for name in samples[0][1]:
        shown = [samples[at][1][name] for at in (0, len(samples) // 2, -1)]
        rise, error = slope([(count, row[name]) for count, row in half])
        over_half = rise * (half[-1][0] - half[0][0])
        grows = "yes" if rise > 3 * error and over_half > 0.01 * max(shown[1], 1) else "no"
        digits = 0 if all(value == int(value) for value in shown) else 2
        cells = [f"{value:.{digits}f}" for value in shown]
        lines.append(f"| {name} | {' | '.join(cells)} | {1000 * rise:.2f} ± {2000 * error:.2f} | {grows} |")
    words = [
        f"{len(trials)} trials ({', '.join(f'{n} {name}' for name, n in outcomes.items())}), {forked[1] if forked else '?'} "
        f"forked, exit code {code}, {len(samples)} samples.",
        f"After the search: {len(survivors)} processes, {len(leftovers)} things left {leftovers or ''}.",
        f"A gputune that reads the journal of these trials anew and goes on holds {anew:.2f} MiB at most.",
    ]
    shutil.rmtree(folder, ignore_errors=True)
    return "\n".join(lines) + "\n\n" + "\n".join(words) + "\n"


# --- kills ---------------------------------------------------------------------------------------------------------

VICTIMS = ("gputune", "zygote", "supervisor of the zygote", "supervisor of a probe", "script")
#: The phases in which a victim is there.
PHASES = {
    "gputune": ("fresh", "zygote starts", "forked"),
    "zygote": ("zygote starts", "forked", "forked", "forked"),
    "supervisor of the zygote": ("zygote starts", "forked", "forked", "forked"),
    "supervisor of a probe": ("fresh", "forked", "forked", "forked"),
    "script": ("fresh", "forked", "forked", "forked"),
}
PROBES = 6


def kill_one(search, victim, phase, chance):
    """Waits for the phase and a random time in it, and kills the victim, if it is met; when, and what there was."""
    wait = chance.uniform(0, 5 if phase == "fresh" else 3)
    begun, deadline = None, time.monotonic() + LONGEST_SEARCH
    while time.monotonic() < deadline and search.child.poll() is None:
        roles = search.roles()
        if search.phase(roles) == phase:
            begun = begun or time.monotonic()
        if begun and time.monotonic() - begun >= wait and roles[victim]:
            try:
                os.kill(roles[victim][0], signal.SIGKILL)
                there = [name for name in VICTIMS if roles[name]]
                return {"killed": search.phase(roles), "pid": roles[victim][0], "there were": there}
            except ProcessLookupError:
                pass
        # Uneven, so that no moment of a probe is left out.
        time.sleep(chance.uniform(0, 0.02))
    return {"killed": None}


def settled(search):
    """What survives and what is left, as soon as nothing does, or in the end."""
    began = time.monotonic()
    while True:
        survivors = search.living()
        seconds = time.monotonic() - began
        if not survivors or seconds > LONGEST_SURVIVAL:
            break
        time.sleep(0.1)
    left = search.left()
    if left:
        time.sleep(1)
        left = search.left()
    return survivors, left, seconds


def kill_round(options, number):
    chance = random.Random(options.seed * 1_000_000 + number)
    victim = options.only or VICTIMS[number % len(VICTIMS)]
    phase = chance.choice(PHASES[victim])
    folder = tempfile.mkdtemp(prefix="soak-")
    search = Search(options, folder, PROBES, 300, number)
    found = {"round": number, "victim": victim, "phase": phase, **kill_one(search, victim, phase, chance)}
    if victim != "gputune":
        end(search, found)
    else:
        search.child.wait()
    found["survivors"], found["left"], found["seconds"] = settled(search)
    shown = set(re.findall(r"^ *(\d+)  batch_size=", search.said(), re.M))
    trials = search.trials()
    found["at the kill"] = len(trials)
    found["lost"] = sorted(shown - {str(trial["trial"]) for trial in trials})
    if victim == "gputune":
        report = subprocess.run([options.gputune, "report", search.out], capture_output=True, text=True, check=False)
        found["readable"] = report.returncode == 0 or not trials
        found["report"] = report.returncode, report.stderr[:300]
        if number // len(VICTIMS) % options.complete == 0:
            search.go_on()
            end(search, found)
            after = {trial["trial"]: trial for trial in search.trials()}
            found["lost"] += [trial["trial"] for trial in trials if after.get(trial["trial"]) != trial]
            survivors, left, _ = settled(search)
            found["survivors"] += survivors
            found["left after"] = left
    found["remarks"] = re.findall(r"^.*(?:imports everything|disturbed|put back|error).*$", search.said(), re.M)
    bad = [found.get(name) for name in ("survivors", "left", "left after", "lost", "failed")]
    if not any(bad) and found.get("readable", True) and found.get("ended") != "badly":
        shutil.rmtree(folder, ignore_errors=True)
    else:
        found["folder"] = folder
    return found


def end(search, found):
    """Waits for the search, and notes how it ended."""
    deadline = time.monotonic() + LONGEST_SEARCH
    while search.child.poll() is None and time.monotonic() < deadline:
        search.roles()
        time.sleep(0.05)
    found["code"] = search.child.poll()
    if found["code"] is None:
        search.child.kill()
        search.child.wait()
    trials = search.trials()
    numbers = [trial["trial"] for trial in trials]
    failed = [trial for trial in trials if trial["outcome"] != GOOD]
    found["failed"] = [[trial["trial"], trial["outcome"], trial.get("reason")] for trial in failed]
    found["ended"] = "well" if found["code"] == 0 and numbers == list(range(1, PROBES + 1)) else "badly"


def kills(options):
    rows = []
    if options.earlier:
        with open(options.earlier, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        numbers = range(options.first, options.first + options.rounds)
        waiting = [pool.submit(kill_round, options, number) for number in numbers]
        for done in concurrent.futures.as_completed(waiting):
            rows.append(done.result())
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return table_of_kills(rows)


def table_of_kills(rows):
    lines = [
        "| victim | when | rounds | with survivors | with leftovers | with lost trials | trials that failed "
        "| went on to the end | not ended well | journals unreadable | longest until all had ended |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for victim in VICTIMS:
        for phase in sorted(set(PHASES[victim])):
            of = [row for row in rows if row["victim"] == victim and row["killed"] == phase]
            if not of:
                continue
            ended = [row["ended"] for row in of if "ended" in row]
            cells = [
                len(of),
                sum(bool(row["survivors"]) for row in of),
                sum(bool(row["left"] or row.get("left after")) for row in of),
                sum(bool(row["lost"]) for row in of),
                sum(len(row.get("failed", ())) for row in of),
                len(ended),
                ended.count("badly"),
                sum(not row.get("readable", True) for row in of),
                f"{max(row['seconds'] for row in of):.1f} s",
            ]
            lines.append(f"| {victim} | {phase} | {' | '.join(map(str, cells))} |")
    missed = sum(row["killed"] is None for row in rows)
    return "\n".join(lines) + f"\n\n{missed} rounds in which the victim was not met.\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("leaks", "kills"))
    parser.add_argument("gputune", type=os.path.abspath)
    parser.add_argument("python", type=os.path.abspath)
    parser.add_argument("--probes", type=int, default=1000, help="forked probes of `leaks`")
    parser.add_argument("--longest", type=float, default=1e9, help="seconds after which `leaks` stops its search")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the number of the first round")
    parser.add_argument("--earlier", help="what an earlier run of `kills` wrote to standard error, for the same table")
    parser.add_argument("--jobs", type=int, default=1, help="rounds at a time")
    parser.add_argument("--complete", type=int, default=3, help="one in so many searches whose gputune was killed goes on")
    parser.add_argument("--only", choices=VICTIMS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print({"leaks": leaks, "kills": kills}[options.part](options))


if __name__ == "__main__":
    main()
