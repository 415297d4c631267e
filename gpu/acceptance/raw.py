"""Raw facts: the NVML calls and fields that gputune uses, and the CUDA calls of its hook, with return code and latency.

`python -m acceptance.raw` prints a line of JSON for each NVML call as soon as it has returned.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from ctypes import c_char, c_int, c_longlong, c_uint, c_ulonglong, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Optional

from . import machine, nvidia_smi, process
from .context import GPU_FOLDER, SCRIPTS, Context
from .nvml import GPM_METRICS, GpmMetricsGet, Nvml, NvmlError
from .results import Report

#: How often each call is repeated after the first time.
REPEATS = 3
#: Time between two GPM samples, in seconds.
GPM_SECONDS = 0.2
PROCESSES, SAMPLES = 64, 1000
TEXT_BYTES = 96


class Process(ctypes.Structure):
    """nvmlProcessInfo_t."""

    _fields_ = [("pid", c_uint), ("memory", c_ulonglong), ("gpu_instance", c_uint), ("compute_instance", c_uint)]


class ProcessShare(ctypes.Structure):
    """nvmlProcessUtilizationSample_t."""

    _fields_ = [("pid", c_uint), ("at", c_ulonglong), *((name, c_uint) for name in ("sm", "memory", "encoder", "decoder"))]


class Sample(ctypes.Structure):
    """nvmlSample_t."""

    _fields_ = [("at", c_ulonglong), ("value", c_ulonglong)]


class MemoryV2(ctypes.Structure):
    """nvmlMemory_v2_t."""

    _fields_ = [("version", c_uint), *((name, c_ulonglong) for name in ("total", "reserved", "free", "used"))]


class Field(ctypes.Structure):
    """nvmlFieldValue_t."""

    _fields_ = [
        ("field", c_uint),
        ("scope", c_uint),
        ("at", c_longlong),
        ("latency", c_longlong),
        ("kind", c_uint),
        ("code", c_uint),
        ("value", c_ulonglong),
    ]


@dataclass(frozen=True)
class Call:
    """An NVML function: its arguments after the device, and how its answer is read."""

    name: str
    arguments: Callable[[], list[Any]]
    #: The first argument is the device.
    of_device: bool = True
    #: Distinguishes two rows of one function.
    about: str = ""
    #: The arguments for an array with this many items. A first call without an array asks for their number.
    sized: Optional[Callable[[int], list[Any]]] = None


def text(name: str, of_device: bool = True) -> Call:
    return Call(name, lambda: [(c_char * TEXT_BYTES)(), c_uint(TEXT_BYTES)], of_device)


def listed(name: str, kind: Any) -> Call:
    """A function that fills an array."""
    return Call(name, lambda: [InOut(PROCESSES), (kind * PROCESSES)()])


def shares(room: int) -> list[Any]:
    """NVML has one item for each sample in its buffer, which may be more than there are processes."""
    return [(ProcessShare * room)() if room else c_void_p(), InOut(room), c_ulonglong(0)]


class InOut:
    """The length of an array, which the call replaces by the number of its items."""

    def __init__(self, length: int) -> None:
        self.number = c_uint(length)


def memory_v2() -> list[Any]:
    return [MemoryV2(version=ctypes.sizeof(MemoryV2) | 2 << 24)]


def fields(*numbers: int) -> Callable[[], list[Any]]:
    return lambda: [c_int(len(numbers)), (Field * len(numbers))(*(Field(field=number) for number in numbers))]


def samples(kind: int) -> Callable[[], list[Any]]:
    return lambda: [c_uint(kind), c_ulonglong(0), Out(c_uint), InOut(SAMPLES), (Sample * SAMPLES)()]


class Out:
    """A number that the call fills, where numbers without this mark are given to it."""

    def __init__(self, kind: Any) -> None:
        self.number = kind()


def given(name: str, about: str, *values: Any, kinds: tuple[Any, ...]) -> Call:
    """A function with arguments that choose, then numbers that it fills."""
    return Call(name, lambda: [*values, *(Out(kind) for kind in kinds)], about=about)


def filled(name: str, *kinds: Any) -> Call:
    return given(name, "", kinds=kinds)


#: All calls by which gputune reads a GPU, except the calls for MIG instances. Numbers come from nvml.h.
CALLS = [
    text("nvmlSystemGetDriverVersion", of_device=False),
    Call("nvmlDeviceGetCount_v2", lambda: [Out(c_uint)], of_device=False),
    text("nvmlDeviceGetUUID"),
    text("nvmlDeviceGetName"),
    Call("nvmlDeviceGetPciInfo_v3", lambda: [(c_char * 128)()]),
    filled("nvmlDeviceGetMigMode", c_uint, c_uint),
    filled("nvmlDeviceGetMaxMigDeviceCount", c_uint),
    filled("nvmlDeviceGetCudaComputeCapability", c_int, c_int),
    filled("nvmlDeviceGetPersistenceMode", c_uint),
    Call("nvmlDeviceGetMemoryInfo", lambda: [(c_ulonglong * 3)()]),
    Call("nvmlDeviceGetMemoryInfo_v2", memory_v2),
    listed("nvmlDeviceGetComputeRunningProcesses_v3", Process),
    listed("nvmlDeviceGetComputeRunningProcesses_v2", Process),
    listed("nvmlDeviceGetMPSComputeRunningProcesses_v3", Process),
    Call("nvmlDeviceGetProcessUtilization", lambda: shares(0), sized=shares),
    Call("nvmlDeviceGetSamples", samples(0), about="power"),
    Call("nvmlDeviceGetSamples", samples(1), about="GPU busy"),
    Call("nvmlDeviceGetUtilizationRates", lambda: [(c_uint * 2)()]),
    filled("nvmlDeviceGetPowerUsage", c_uint),
    filled("nvmlDeviceGetTotalEnergyConsumption", c_ulonglong),
    given("nvmlDeviceGetClockInfo", "SM", c_uint(1), kinds=(c_uint,)),
    given("nvmlDeviceGetClockInfo", "memory", c_uint(2), kinds=(c_uint,)),
    given("nvmlDeviceGetApplicationsClock", "graphics", c_uint(0), kinds=(c_uint,)),
    given("nvmlDeviceGetApplicationsClock", "memory", c_uint(2), kinds=(c_uint,)),
    filled("nvmlDeviceGetPowerManagementLimit", c_uint),
    filled("nvmlDeviceGetEnforcedPowerLimit", c_uint),
    filled("nvmlDeviceGetPowerManagementDefaultLimit", c_uint),
    filled("nvmlDeviceGetCurrentClocksThrottleReasons", c_ulonglong),
    Call("nvmlDeviceGetFieldValues", fields(74, 75), about="throttled by power and heat"),
    Call("nvmlDeviceGetViolationStatus", lambda: [c_uint(0), (c_ulonglong * 2)()], about="power"),
    Call("nvmlDeviceGetViolationStatus", lambda: [c_uint(1), (c_ulonglong * 2)()], about="heat"),
    given("nvmlDeviceGetTotalEccErrors", "uncorrected", c_uint(1), c_uint(0), kinds=(c_ulonglong,)),
    filled("nvmlDeviceGetRemappedRows", c_uint, c_uint, c_uint, c_uint),
    filled("nvmlDeviceGetCurrPcieLinkGeneration", c_uint),
    filled("nvmlDeviceGetCurrPcieLinkWidth", c_uint),
    filled("nvmlDeviceGetMaxPcieLinkGeneration", c_uint),
    filled("nvmlDeviceGetMaxPcieLinkWidth", c_uint),
    given("nvmlDeviceGetNvLinkState", "link 0", c_uint(0), kinds=(c_uint,)),
]


def ask(nvml: Nvml, call: Call) -> dict[str, Any]:
    """Calls a function several times: its last return code and answer, and the time of the first and the fastest call."""
    row: dict[str, Any] = {"call": call.name, **({"about": call.about} if call.about else {})}
    function = getattr(nvml.loaded, call.name, None)
    if function is None:
        return {**row, "error": "not in this driver"}
    times = []
    for _ in range(1 + REPEATS):
        arguments = call.arguments()
        if call.sized is not None:
            function(*passed(nvml, call, arguments))
            arguments = call.sized(next(argument.number.value for argument in arguments if isinstance(argument, InOut)))
        given_arguments = passed(nvml, call, arguments)
        begun = time.perf_counter()
        code = function(*given_arguments)
        times.append(1e6 * (time.perf_counter() - begun))
    row.update(code=code, first_us=round(times[0], 1), fastest_us=round(min(times[1:]), 1))
    if code == 0:
        row["value"] = answer(arguments)
    else:
        row["error"] = nvml.words(code)
    return row


def passed(nvml: Nvml, call: Call, arguments: list[Any]) -> list[Any]:
    return [nvml.device] * call.of_device + [reference(argument) for argument in arguments]


def reference(argument: Any) -> Any:
    if isinstance(argument, (InOut, Out)):
        return ctypes.byref(argument.number)
    return ctypes.byref(argument) if isinstance(argument, (ctypes.Structure, ctypes.Array)) else argument


def answer(arguments: list[Any]) -> Any:
    """The values that a call filled: one value, or a list. An array gives as many items as the call counted, at most three."""
    count = next((argument.number.value for argument in arguments if isinstance(argument, InOut)), None)
    told: list[Any] = [] if count is None else [{"count": count}]
    for argument in arguments:
        if isinstance(argument, Out):
            told.append(argument.number.value)
        elif isinstance(argument, ctypes.Structure):
            told.append(members(argument))
        elif isinstance(argument, ctypes.Array):
            told += read_array(argument, len(argument) if count is None else min(count, 3))
    return told[0] if len(told) == 1 else told


def read_array(array: Any, count: int) -> list[Any]:
    if array._type_ is c_char:
        return [" ".join(part.decode(errors="replace") for part in array.raw.split(b"\0") if part.isascii() and part.strip())]
    items = array[:count]
    return [members(item) if isinstance(item, ctypes.Structure) else item for item in items]


def members(structure: ctypes.Structure) -> dict[str, Any]:
    return {field[0]: getattr(structure, field[0]) for field in structure._fields_}


def events(nvml: Nvml) -> dict[str, Any]:
    """Registers for errors of the hardware."""
    kept = c_void_p()
    nvml.call("nvmlEventSetCreate", ctypes.byref(kept))
    try:
        nvml.call("nvmlDeviceRegisterEvents", nvml.device, c_ulonglong(0x8), kept)
    finally:
        nvml.call("nvmlEventSetFree", kept)
    return {"critical errors": "can be waited for"}


def gpm(nvml: Nvml) -> dict[str, Any]:
    """Two samples and each metric between them, with its own return code."""
    first = nvml.gpm_sample()
    time.sleep(GPM_SECONDS)
    request = GpmMetricsGet(version=1, count=len(GPM_METRICS), sample1=first, sample2=nvml.gpm_sample())
    for index, number in enumerate(GPM_METRICS.values()):
        request.metrics[index].metric_id = number
    nvml.call("nvmlGpmMetricsGet", ctypes.byref(request))
    told = zip(GPM_METRICS, request.metrics)
    return {name: {"code": metric.nvml_return, "value": repr(metric.value)} for name, metric in told}


def timed(name: str, work: Callable[[Nvml], dict[str, Any]], nvml: Nvml) -> dict[str, Any]:
    """A sequence of calls as one row."""
    begun = time.perf_counter()
    try:
        row = {"call": name, "code": 0, "value": work(nvml)}
    except NvmlError as error:
        row = {"call": name, "error": str(error)}
    return {**row, "first_us": round(1e6 * (time.perf_counter() - begun), 1)}


def main() -> None:
    """Prints a row for each call. A call that hangs is the one after the last line."""
    begun = time.perf_counter()
    try:
        nvml = Nvml()
    except NvmlError as error:
        print(json.dumps({"call": "nvmlInit_v2", "error": str(error)}))
        return
    print(json.dumps({"call": "nvmlInit_v2", "code": 0, "first_us": round(1e6 * (time.perf_counter() - begun), 1)}), flush=True)
    for call in CALLS:
        print(json.dumps(ask(nvml, call)), flush=True)
    for name, work in (("nvmlEventSetCreate", events), ("nvmlGpmMetricsGet", gpm)):
        print(json.dumps(timed(name, work, nvml)), flush=True)


def nvml(context: Context, report: Report) -> None:
    """The facts of NVML, and all that `nvidia-smi -q` prints."""
    everything = machine.output(["nvidia-smi", "-q", *nvidia_smi.chosen_alone()], 10)
    (context.folder("preflight") / "nvidia-smi-q.txt").write_text(everything)
    done = process.run([sys.executable, "-m", "acceptance.raw"], context.left - 2, env={"PYTHONPATH": str(GPU_FOLDER)})
    judge_nvml(report, rows_of(done.stdout), done, context.dry)
    report.tell("nvidia-smi -q", "kept with the results", f"{len(everything.splitlines())} lines")


def judge_nvml(report: Report, rows: list[dict[str, Any]], done: process.Done, is_dry: bool) -> None:
    """Only a library that cannot be opened, or a call that never returns, is a failure: meters differ between GPUs."""
    report.number(calls=rows)
    if is_dry and rows and "error" in rows[0]:
        report.skip("nvmlInit_v2", "code 0", str(rows[0]["error"]))
        return
    opened = bool(rows) and rows[0].get("code") == 0
    report.judge("nvmlInit_v2", "code 0", str(rows[0].get("error", "code 0")) if rows else done.last_line(), opened)
    if not opened:
        return
    last = f"{done.ended} after {rows[-1]['call']}"
    expected = len(CALLS) + 3
    report.judge("all calls", f"{expected} return", f"{len(rows)}; {last}", len(rows) == expected and done.code == 0)
    lacking = [f"{row['call']} ({row['error']})" for row in rows if "error" in row]
    report.tell("calls without an answer", "any", "; ".join(lacking) or "none")
    slow = max(rows[1:-1], key=lambda row: float(row.get("fastest_us", 0)), default={})
    report.tell("the slowest call", "any", f"{slow.get('call')}: {slow.get('fastest_us')} us, at first {slow.get('first_us')} us")


def rows_of(printed: str) -> list[dict[str, Any]]:
    """Complete lines only."""
    rows = []
    for line in printed.splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


def cuda(context: Context, report: Report) -> None:
    """The facts of CUDA through PyTorch."""
    words = [sys.executable, str(SCRIPTS / "cuda_facts.py"), "--device", context.device]
    done = process.run(words, context.left - 1, env=context.environment())
    facts = {str(row.get("fact")): row for row in rows_of(done.stdout)}
    report.number(facts=list(facts.values()))
    judge_cuda(report, facts, done, "" if not context.dry else context.trains_on)


def judge_cuda(report: Report, facts: dict[str, Any], done: process.Done, stand_in: str) -> None:
    """The memory by the driver and by the allocator must be there. Latencies are not judged."""
    if stand_in and not facts:
        report.skip("facts", "are printed", f"a dry run on {stand_in}: {done.last_line()}")
        return
    report.judge("the script", "exit code 0", f"{done.ended}: {len(facts)} facts", done.code == 0 and bool(facts))
    for name in ("mem_get_info", "memory_stats"):
        wrong: Optional[str] = facts.get(name, {"error": "not printed"}).get("error")
        if stand_in and wrong:
            report.skip(name, "is told", f"a dry run on {stand_in}: {wrong}")
        else:
            report.judge(name, "is told", wrong or str(facts[name]["value"])[:100], wrong is None)
    for name in ("event_record", "event_elapsed", "event_query", "synchronize", "launch"):
        row = facts.get(name, {})
        report.tell(name, "any", str(row.get("error") or f"{row.get('us')} us")[:100])


if __name__ == "__main__":
    main()
