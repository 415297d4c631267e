"""What gputune reads of a GPU, against nvidia-smi and against NVML asked directly."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Optional

from . import nvidia_smi, process
from .context import GPU_FOLDER, SCRIPTS, SPECS, Context, host_reading, near, reading
from .nvml import Nvml, NvmlError, energy_period_seconds
from .results import FAILED, PASSED, SKIPPED, Report

LOAD = SPECS / "load.toml"
NOBODY = 65534
# Student's t for a 95 % interval, by degrees of freedom.
STUDENT = {2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 10: 2.23, 11: 2.20, 12: 2.18}
STUDENT.update({13: 2.16, 14: 2.14, 15: 2.13})
MOST_ROUNDS, FEWEST_ROUNDS = 16, 3
# Of a second each.
WINDOW_TICKS = 8
COST = 0.005
# Of the load's run, alone and in a probe: clocks fall while it gets warm, so the same seconds are compared.
RATE_SECONDS = 5


class Load:
    """scripts/load.py on its own, from the moment it is steady."""

    def __init__(self, folder: Path, *arguments: object) -> None:
        self.output = folder / "load.txt"
        command = [sys.executable, str(SCRIPTS / "load.py"), *map(str, arguments)]
        self.child = process.start(command, stdout=self.output)

    def wait_until_steady(self, limit: float = 60) -> bool:
        end = time.monotonic() + limit
        while time.monotonic() < end and self.child.poll() is None:
            if "steady" in self.text():
                return True
            time.sleep(0.1)
        return False

    def text(self) -> str:
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def stop(self) -> None:
        process.end(self.child)


def against_nvidia_smi(context: Context, report: Report, busy: float) -> None:
    """A probe of a known load, with nvidia-smi sampling beside it."""
    folder = context.folder("meters")
    before = nvidia_smi.memory_used_mib() or 0.0
    samples = nvidia_smi.Samples(folder / f"smi-{busy}.csv")
    done, probe = context.probe(LOAD, folder / f"busy-{busy}", busy=busy, memory_gib=4)
    until = time.time()
    seen = samples.stop()
    # Ending the step takes a moment, during which it no longer computes.
    window = (until - float(probe.get("measured_seconds", 0)) - 1.0, until - 1.0)
    label = f"{busy:.0%} busy"
    if probe.get("outcome") != "measured":
        report.judge(label, "a measured probe", f"{probe.get('outcome')}: {done.last_line()}", False)
        return
    witnesses = {name: nvidia_smi.mean(seen, name, *window) for name in nvidia_smi.FIELDS[1:]}
    report.number(**{label: {"probe": probe.get("gpus"), "nvidia_smi": witnesses}})
    compare(report, label, probe, witnesses, before)


def compare(
    report: Report, label: str, probe: dict[str, Any], witnesses: dict[str, Optional[float]], before: float
) -> None:
    """One row for each metric: what it is at gputune, at nvidia-smi, and how far they may be apart."""
    used = witnesses["memory.used"]
    rows = [
        ("GPU busy", "gpu_busy", 100.0, witnesses["utilization.gpu"], "%", 0.0, 10.0),
        ("memory of the probe", "memory_own", 2**-20, used - before if used is not None else None, "MiB", 0.03, 96.0),
        ("power", "power", 1.0, witnesses["power.draw"], "W", 0.08, 10.0),
        ("SM clock", "sm_clock", 1.0, witnesses["clocks.sm"], "MHz", 0.05, 30.0),
        ("memory clock", "memory_clock", 1.0, witnesses["clocks.mem"], "MHz", 0.02, 10.0),
    ]
    for what, metric, factor, witness, unit, share, absolute in rows:
        name, told = f"{label}, {what}", reading(probe, metric)
        if witness is None:
            report.skip(name, f"as nvidia-smi, in {unit}", "nvidia-smi does not tell")
        elif told is None:
            report.missing(name, f"{witness:.0f} {unit} (nvidia-smi)", absent(probe))
        else:
            value = told[0] * factor
            allowed = max(share * witness, absolute)
            report.judge(
                name,
                f"{witness:.0f} ± {allowed:.0f} {unit} (nvidia-smi)",
                f"{value:.0f} {unit} ({told[1]})",
                near(value, witness, share, absolute),
            )


def gpm_as(copy: Path, user: Optional[int]) -> dict[str, Any]:
    """NVML's own two-sample test in a process of this user."""
    command = [sys.executable, "-m", "acceptance.nvml", "2"]
    done = process.run(as_user(command, user), 30, cwd=copy, env={"PYTHONPATH": str(copy)})
    try:
        answer = json.loads(done.stdout)
        return answer if isinstance(answer, dict) else {}
    except ValueError:
        return {"error": done.last_line()}


def as_user(command: list[str], user: Optional[int]) -> list[str]:
    if user is None:
        return command
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs", *command]


def homes(folder: Path) -> dict[str, str]:
    """Folders that a user can write to, whoever set the variables before."""
    names = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "TMPDIR")
    return {name: str(folder) for name in names}


def why_not_as(copy: Path, user: int) -> Optional[str]:
    """Why this user cannot run the load, if it cannot: where it may not read Python, that says nothing of gputune."""
    if not shutil.which("setpriv"):
        return "there is no setpriv"
    script = "import os, sys, torch; os.listdir(sys.argv[1]); torch.zeros(1, device=sys.argv[2])"
    command = as_user([sys.executable, "-c", script, str(copy), "cuda"], user)
    done = process.run(command, 90, cwd=copy, env=homes(folder_of(copy, "trial")))
    return None if done.code == 0 else f"user {user} cannot use PyTorch here: {done.last_line()}"


def folder_of(copy: Path, name: str) -> Path:
    """A folder that everybody can write to."""
    out = copy / f"out-{name}"
    out.mkdir()
    out.chmod(0o777)
    return out


def gpm(context: Context, report: Report) -> None:
    """GPM as this user and, where this one is root, as one without privileges."""
    copy = readable_copy(context)
    try:
        compare_users(context, report, copy)
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def compare_users(context: Context, report: Report, copy: Path) -> None:
    users: list[tuple[str, Optional[int]]] = [("as root" if os.geteuid() == 0 else "without root", None)]
    if os.geteuid() == 0:
        why_not = why_not_as(copy, NOBODY)
        if why_not:
            report.skip("without root", "as with root", why_not)
        else:
            users.append(("without root", NOBODY))
    else:
        report.skip("as root", "as without root", "these checks do not run as root")
    load = Load(context.folder("gpm"), "--size", 4096)
    try:
        load.wait_until_steady()
        answers = {label: gpm_as(copy, user) for label, user in users}
    finally:
        load.stop()
    report.number(nvml=answers)
    for label, user in users:
        supported = (answers[label].get("means") or {}).get("sm_util")
        probe = gpm_probe(context, copy, label.replace(" ", "-"), user)
        told = reading(probe, "sm_active")
        if probe.get("outcome") != "measured":
            report.judge(label, "a measured probe", str(probe.get("outcome", probe.get("error"))), False)
        elif supported is None:
            why = answers[label].get("error", "the device does not tell")
            passed = told[1] != "gpm" if told else bool(reasons(probe))
            report.judge(label, f"no GPM ({why}), and a reason", f"SM activity {told or absent(probe)}", passed)
        else:
            expected = f"SM active {supported:.0f} ± 5 % by GPM"
            if told is None:
                report.missing(label, expected, absent(probe))
                continue
            passed = told[1] == "gpm" and near(100 * told[0], supported, 0.05, 5)
            report.judge(label, expected, f"{told[0]:.0%} ({told[1]})", passed)


def absent(probe: dict[str, Any]) -> str:
    return "absent: " + ("; ".join(reasons(probe)) or "no reason given")


def reasons(probe: dict[str, Any]) -> list[str]:
    return [text for gpu in probe.get("gpus") or [] for text in gpu.get("absent", [])]


def readable_copy(context: Context) -> Path:
    """The binary, the specs and the scripts where a user without privileges can read them."""
    copy = Path(tempfile.mkdtemp(prefix="gputune-acceptance-"))
    copy.chmod(0o755)
    for name in ("acceptance", "scripts", "specs"):
        shutil.copytree(GPU_FOLDER / name, copy / name)
    shutil.copy(context.binary, copy / "gputune")
    for path in [copy, *copy.rglob("*")]:
        path.chmod(0o755)
    return copy


def gpm_probe(context: Context, copy: Path, name: str, user: Optional[int]) -> dict[str, Any]:
    out = folder_of(copy, name)
    spec = copy / "specs" / LOAD.name
    command = [
        str(copy / "gputune"),
        "probe",
        str(spec),
        "--json",
        "--quiet",
        "--out",
        str(out / "probe"),
        "--set",
        "memory_gib=1",
    ]
    environment = {**context.environment(), **homes(out)}
    done = process.run(as_user(command, user), min(context.left, 90), cwd=out, env=environment)
    try:
        content = json.loads(done.stdout)
        return content if isinstance(content, dict) else {}
    except ValueError:
        return {"error": done.last_line()}


def window_mean(context: Context, report: Report) -> None:
    """One mean over a window against ticks of a second, of a load that comes and goes every two seconds."""
    try:
        nvml = Nvml()
        nvml.gpm_means(nvml.gpm_sample(), pause(nvml))
    except NvmlError as error:
        report.skip("mean over a window", "the mean of its ticks", str(error))
        return
    folder = context.folder("window")
    load = Load(folder, "--busy", 0.5, "--cycle", 4.0)
    try:
        load.wait_until_steady()
        samples = [(time.monotonic(), nvml.gpm_sample())]
        for _ in range(WINDOW_TICKS):
            time.sleep(1)
            samples.append((time.monotonic(), nvml.gpm_sample()))
    finally:
        load.stop()
    whole = nvml.gpm_means(samples[0][1], samples[-1][1])
    ticks = [
        (later[0] - earlier[0], nvml.gpm_means(earlier[1], later[1])) for earlier, later in zip(samples, samples[1:])
    ]
    report.number(whole=whole, ticks=ticks)
    for metric in ("sm_util", "dram"):
        values = [(seconds, tick[metric]) for seconds, tick in ticks]
        mean = weighted_mean(values)
        total = whole[metric]
        if mean is None or total is None:
            report.skip(metric, "the mean of its ticks", "the device does not tell")
        else:
            report.judge(
                f"NVML's {metric}, {WINDOW_TICKS} s", f"{mean:.1f} ± 2 % (mean of ticks)", f"{total:.1f} %", near(total, mean, 0, 2)
            )
    _, probe = context.probe(LOAD, folder / "probe", busy=0.5, cycle=0.1, memory_gib=1)
    busy = weighted_mean([(seconds, tick["sm_util"]) for seconds, tick in ticks])
    told = reading(probe, "sm_active")
    label, expected = "a probe of half the load", f"{busy or 0:.0f} ± 10 % (as before)"
    if told is None:
        report.missing(label, expected, absent(probe))
    else:
        passed = busy is not None and near(100 * told[0], busy, 0, 10)
        report.judge(label, expected, f"{100 * told[0]:.1f} % ({told[1]})", passed)


def pause(nvml: Nvml) -> Any:
    time.sleep(0.3)
    return nvml.gpm_sample()


def weighted_mean(values: list[tuple[float, Optional[float]]]) -> Optional[float]:
    told = [(weight, value) for weight, value in values if value is not None]
    total = sum(weight for weight, _ in told)
    return sum(weight * value for weight, value in told) / total if told and total > 0 else None


def observer(context: Context, report: Report) -> None:
    """The rate of a load by its own count, alone and in a probe, in turn; and the processor time that gputune takes."""
    folder = context.folder("observer")
    pairs: list[float] = []
    shares: list[float] = []
    longest = 0.0
    for number in range(MOST_ROUNDS):
        begun = context.left
        if begun < max(25.0, 1.2 * longest):
            break
        rates: dict[bool, Optional[float]] = {}
        for in_probe in (number % 2 == 0, number % 2 == 1):
            if in_probe:
                rates[True], share = rate_in_probe(context, folder / f"probe-{number}")
                shares += [share] if share is not None else []
            else:
                rates[False] = rate_alone(folder, folder / f"alone-{number}")
        probed, alone = rates[True], rates[False]
        pairs += [probed / alone - 1] if probed and alone else []
        longest = max(longest, begun - context.left)
        report.number(differences=pairs, cpu_shares=shares)
    seen, outcome = verdict(pairs)
    report.add("throughput in a probe against alone", "the whole 95 % interval within ± 0.5 %", seen, outcome)
    if shares:
        report.judge(
            "gputune's processor time",
            "below 0.5 % of a core",
            f"{100 * statistics.median(shares):.2f} %",
            statistics.median(shares) < 0.005,
        )
    else:
        report.skip("gputune's processor time", "below 0.5 % of a core", "no probe was seen")


def verdict(differences: list[float], cost: float = COST) -> tuple[str, str]:
    """What relative differences say of the cost. Too few rounds, or rounds too far apart, say nothing."""
    count = len(differences)
    if count < FEWEST_ROUNDS:
        return f"{count} rounds that ended well, not {FEWEST_ROUNDS}", FAILED
    mean, half = interval(differences)
    seen = f"{100 * mean:+.2f} ± {100 * half:.2f} % in {count} rounds"
    if abs(mean) + half <= cost:
        return seen, PASSED
    is_noise = half > cost and abs(mean) - half <= cost
    return (f"skipped: too noisy ({seen})", SKIPPED) if is_noise else (seen, FAILED)


def interval(differences: list[float]) -> tuple[float, float]:
    """The mean, and half the width of its 95 % interval; of three values or more."""
    count = len(differences)
    half = STUDENT[min(count - 1, max(STUDENT))] * statistics.stdev(differences) / count**0.5
    return statistics.mean(differences), half


def rate_alone(folder: Path, rate: Path) -> Optional[float]:
    load = Load(folder, "--memory-gib", 1, "--seconds", 6, "--rate-seconds", RATE_SECONDS, "--rate-file", rate)
    try:
        load.child.wait(timeout=45)
    except Exception:  # counted as no rate
        return None
    finally:
        load.stop()
    return read_rate(rate)


def rate_in_probe(context: Context, out: Path) -> tuple[Optional[float], Optional[float]]:
    """The load's own rate, and gputune's processor time as a share of a core, while the load ran steadily."""
    shutil.rmtree(out, ignore_errors=True)
    command = [context.binary, "probe", str(LOAD), "--quiet", "--out", str(out), "--set", "memory_gib=1"]
    child = process.start(command, env=context.environment())
    seen: list[tuple[float, float]] = []
    end = time.monotonic() + 60
    while child.poll() is None and time.monotonic() < end:
        used = cpu_of_gputune(child.pid)
        if used is not None and list(out.glob("probes/*/rate")):
            seen.append((time.monotonic(), used))
        time.sleep(0.2)
    process.end(child)
    rates = [rate for rate in map(read_rate, sorted(out.glob("probes/*/rate"))) if rate]
    span = seen[-1][0] - seen[0][0] if len(seen) > 1 else 0.0
    share = (seen[-1][1] - seen[0][1]) / span if span > 2 else None
    return (rates[-1] if rates else None), share


def cpu_of_gputune(pid: int) -> Optional[float]:
    """Of gputune and its supervisor, not of the step."""
    own = Path(f"/proc/{pid}/exe")
    try:
        binary = own.resolve()
    except OSError:
        return None
    total = process.cpu_seconds(pid)
    for child in process.children(pid):
        try:
            if Path(f"/proc/{child}/exe").resolve() == binary:
                total = (total or 0.0) + (process.cpu_seconds(child) or 0.0)
        except OSError:
            continue
    return total


def read_rate(path: Path) -> Optional[float]:
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        return None


def energy(context: Context, report: Report) -> None:
    """How often the energy counter moves, and whether what a probe says of it is the power times the time."""
    folder = context.folder("energy")
    load = Load(folder)
    try:
        load.wait_until_steady()
        try:
            nvml = Nvml()
            period, changes = energy_period_seconds(nvml, 4.0)
            first, begun, powers = nvml.energy_millijoules(), time.monotonic(), []
            while time.monotonic() - begun < 5:
                powers.append(nvml.power_watts())
                time.sleep(0.02)
            watts = (nvml.energy_millijoules() - first) / 1000 / (time.monotonic() - begun)
        except NvmlError as error:
            report.skip("counter", "moves at least once a second", str(error))
            return
    finally:
        load.stop()
    mean = statistics.mean(powers)
    report.number(period_seconds=period, changes=changes, counter_watts=watts, power_watts=mean)
    report.judge(
        "time between two changes of the counter",
        "below 1 s",
        f"{period:.3f} s" if period else "no change",
        period is not None and period < 1,
    )
    report.judge("counter over 5 s", f"{mean:.0f} W ± 8 % (mean of power)", f"{watts:.0f} W", near(watts, mean, 0.08))
    _, probe = context.probe(LOAD, folder / "probe", memory_gib=1)
    joules, power = reading(probe, "energy"), reading(probe, "power")
    seconds = float(probe.get("measured_seconds", 0))
    if joules is None or power is None or seconds <= 0:
        report.missing("energy of a probe", "there, with the power", absent(probe))
    else:
        expected = power[0] * seconds
        report.judge(
            "energy of a probe",
            f"{expected:.0f} J ± 15 % (power times time)",
            f"{joules[0]:.0f} J ({joules[1]})",
            near(joules[0], expected, 0.15),
        )


def host(context: Context, report: Report) -> None:
    """The host meter beside the GPU's: a load that never rests keeps one core busy."""
    folder = context.folder("host")
    _, probe = context.probe(LOAD, folder / "probe", memory_gib=1)
    cores = host_reading(probe, "cpu_cores")
    report.number(host=probe.get("host"))
    if cores is None:
        report.missing("processor time of the step", "0.5 to 2 cores", "absent")
    else:
        report.judge("processor time of the step", "0.5 to 2 cores", f"{cores:.2f} cores", 0.5 <= cores <= 2)
