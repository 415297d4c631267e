"""NVML by ctypes, as little of it as an independent witness needs.

`python -m acceptance.nvml` prints a two-sample GPM test as JSON. With `--hold` it keeps the library open until it is ended.

Numbers and structures are those of NVIDIA's nvml.h (13.0). The list of metrics is the last member of its structure, and
longer in newer headers: the room here is for more than any has.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from typing import Any, Optional

from .nvidia_smi import only_gpu

#: The metrics that src/machine/telemetry/nvml/gpm.rs reads: shares in percent, then traffic in MiB per second.
GPM_METRICS = {
    "sm_util": 2,
    "sm_occupancy": 3,
    "any_tensor_util": 5,
    "dram_bw_util": 10,
    "pcie_rx_per_sec": 21,
    "pcie_tx_per_sec": 20,
    "nvlink_total_rx_per_sec": 60,
    "nvlink_total_tx_per_sec": 61,
}
ROOM = 1024


class GpmMetric(ctypes.Structure):
    """nvmlGpmMetric_t."""

    _fields_ = [
        ("metric_id", ctypes.c_uint),
        ("nvml_return", ctypes.c_uint),
        ("value", ctypes.c_double),
        ("short_name", ctypes.c_char_p),
        ("long_name", ctypes.c_char_p),
        ("unit", ctypes.c_char_p),
    ]


class GpmMetricsGet(ctypes.Structure):
    """nvmlGpmMetricsGet_t, version 1."""

    _fields_ = [
        ("version", ctypes.c_uint),
        ("count", ctypes.c_uint),
        ("sample1", ctypes.c_void_p),
        ("sample2", ctypes.c_void_p),
        ("metrics", GpmMetric * ROOM),
    ]


class NvmlError(Exception):
    """A call that did not succeed."""


class Nvml:
    """An open library and the chosen device, else the first."""

    def __init__(self) -> None:
        try:
            self.loaded = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            raise NvmlError(str(error)) from None
        self.call("nvmlInit_v2")
        self.device = ctypes.c_void_p()
        uuid = only_gpu()
        if uuid:
            self.call("nvmlDeviceGetHandleByUUID", ctypes.c_char_p(uuid.encode()), ctypes.byref(self.device))
        else:
            self.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(0), ctypes.byref(self.device))

    def call(self, name: str, *arguments: Any) -> None:
        try:
            function = getattr(self.loaded, name)
        except AttributeError:
            raise NvmlError(f"{name}: not in this driver") from None
        code = function(*arguments)
        if code != 0:
            raise NvmlError(f"{name}: {self.words(code)} ({code})")

    def words(self, code: int) -> str:
        """NVML's text for a return code."""
        function = getattr(self.loaded, "nvmlErrorString", None)
        if function is None:
            return "error"
        function.restype = ctypes.c_char_p
        return (function(code) or b"").decode()

    def energy_millijoules(self) -> int:
        value = ctypes.c_ulonglong()
        self.call("nvmlDeviceGetTotalEnergyConsumption", self.device, ctypes.byref(value))
        return value.value

    def power_watts(self) -> float:
        value = ctypes.c_uint()
        self.call("nvmlDeviceGetPowerUsage", self.device, ctypes.byref(value))
        return value.value / 1000

    def gpm_sample(self) -> ctypes.c_void_p:
        sample = ctypes.c_void_p()
        self.call("nvmlGpmSampleAlloc", ctypes.byref(sample))
        self.call("nvmlGpmSampleGet", self.device, sample)
        return sample

    def gpm_means(self, first: ctypes.c_void_p, second: ctypes.c_void_p) -> dict[str, Optional[float]]:
        """Means between two samples, in the units of `GPM_METRICS`. `None` if the device has no value."""
        request = GpmMetricsGet(version=1, count=len(GPM_METRICS), sample1=first, sample2=second)
        for index, metric_id in enumerate(GPM_METRICS.values()):
            request.metrics[index].metric_id = metric_id
        self.call("nvmlGpmMetricsGet", ctypes.byref(request))
        means: dict[str, Optional[float]] = {}
        for index, name in enumerate(GPM_METRICS):
            metric = request.metrics[index]
            told = metric.nvml_return == 0 and metric.value == metric.value
            means[name] = metric.value if told else None
        return means


def energy_period_seconds(nvml: Nvml, seconds: float) -> tuple[Optional[float], int]:
    """The median time between two changes of the energy counter, and how many changes were seen."""
    changes, last = [], nvml.energy_millijoules()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        now = nvml.energy_millijoules()
        if now != last:
            changes.append(time.monotonic())
            last = now
        time.sleep(0.0005)
    gaps = sorted(later - earlier for earlier, later in zip(changes, changes[1:]))
    return (gaps[len(gaps) // 2] if gaps else None), len(changes)


def hold() -> None:
    """Keeps a handle: without persistence mode the driver unloads after its last user, and each start takes seconds."""
    try:
        Nvml()
        print("held", flush=True)
    except NvmlError as error:
        print(error, flush=True)
        return
    while True:
        time.sleep(3600)


def main() -> None:
    if "--hold" in sys.argv:
        return hold()
    try:
        nvml = Nvml()
        first = nvml.gpm_sample()
        time.sleep(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)
        print(json.dumps({"means": nvml.gpm_means(first, nvml.gpm_sample())}))
    except NvmlError as error:
        print(json.dumps({"error": str(error)}))


if __name__ == "__main__":
    main()
