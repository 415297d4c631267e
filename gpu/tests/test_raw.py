"""Raw facts of NVML and CUDA: which calls are asked, how, and what the judges make of the answers."""

from __future__ import annotations

import ctypes
import re
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from acceptance import nvml, raw
from acceptance.process import Done
from acceptance.results import Report


class RawTest(unittest.TestCase):
    def report(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return Report(Path(folder.name) / "x.json", "x")

    def judged(self, rows, code=0, dry=False):
        report = self.report()
        raw.judge_nvml(report, rows, Done(code, "", "", 1.0), dry)
        return [row.outcome for row in report.rows]

    def test_a_call_that_never_returns_fails_and_one_without_an_answer_is_told(self):
        rows = [{"call": "nvmlInit_v2", "code": 0}]
        rows += [{"call": f"call-{number}", "code": 3, "error": "Not Supported"} for number in range(len(raw.CALLS) + 2)]
        self.assertEqual(self.judged(rows), ["passed", "passed", "told", "told"])
        self.assertEqual(self.judged(rows[:9], None), ["passed", "failed", "told", "told"])
        self.assertEqual(self.judged([{"call": "nvmlInit_v2", "error": "no such file"}]), ["failed"])
        self.assertEqual(self.judged([{"call": "nvmlInit_v2", "error": "no such file"}], dry=True), ["skipped"])
        self.assertEqual(raw.rows_of('{"call": "a"}\n{"call": '), [{"call": "a"}])

    def test_every_call_of_gputune_is_asked(self):
        # The stand-in has the calls that gputune makes, and no other.
        folder = HERE.parents[1] / "tests" / "stand_in" / "nvml"
        text = "".join(path.read_text() for path in folder.glob("*.rs"))
        known = set(re.findall(r"(?:extern \"C\" fn |^    )(nvml\w+)[(:]", text, re.MULTILINE))
        asked = {call.name for call in raw.CALLS}
        sequences = {name for name in known if name.startswith(("nvmlGpm", "nvmlEvent", "nvmlDeviceRegister"))}
        opening = {"nvmlInit_v2", "nvmlShutdown", "nvmlErrorString", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetHandleByIndex_v2"}
        of_instances = {"nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetGpuInstanceId"}
        of_instances.add("nvmlDeviceGetDeviceHandleFromMigDeviceHandle")
        self.assertGreater(len(known), 40)
        self.assertEqual(known - sequences - opening - of_instances, asked)

    def test_memory_has_to_be_told_and_latencies_are_facts(self):
        facts = {"mem_get_info": {"value": [1, 2]}, "memory_stats": {"value": {}}, "launch": {"us": 3.0}}
        for facts, code, stand_in, outcomes in [
            (facts, 0, "", ["passed"] * 3),
            ({**facts, "mem_get_info": {"error": "no device"}}, 0, "", ["passed", "failed", "passed"]),
            ({**facts, "mem_get_info": {"error": "no device"}}, 0, "the processor", ["passed", "skipped", "passed"]),
            ({}, 1, "", ["failed"] * 3),
            ({}, 1, "the processor", ["skipped"]),
        ]:
            report = self.report()
            raw.judge_cuda(report, facts, Done(code, "", "", 1.0), stand_in)
            self.assertEqual([row.outcome for row in report.rows if row.outcome != "told"], outcomes)

    def test_the_metrics_of_gpm_are_those_of_gputune(self):
        source = (HERE.parents[1] / "src/machine/telemetry/nvml/gpm.rs").read_text()
        names = re.findall(r"\(Metric::\w+, GpmMetricId::(\w+), ", source)
        snake = [re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name in names]
        self.assertEqual((len(names), list(nvml.GPM_METRICS)), (8, snake))
        # The stand-in for NVML has the numbers of nvml.h.
        known = (HERE.parents[1] / "tests/stand_in/nvml/gpm.rs").read_text()
        numbers = set(map(int, re.findall(r"^    \((\d+), \"", known, re.MULTILINE)))
        self.assertEqual(set(nvml.GPM_METRICS.values()), numbers)

    def test_the_number_of_processes_samples_is_asked_first(self):
        rooms = []

        def function(_, array, count, since):
            rooms.append(count._obj.value)
            if count._obj.value < 100:  # the driver's buffer, however few processes there are
                count._obj.value = 100
                return 7
            self.assertEqual(len(array._obj), 100)
            array._obj[0].pid, count._obj.value = 42, 1
            return 0

        driver = SimpleNamespace(nvmlDeviceGetProcessUtilization=function)
        fake = SimpleNamespace(loaded=driver, device=ctypes.c_void_p(), words=lambda code: f"code {code}")
        call = next(call for call in raw.CALLS if call.name == "nvmlDeviceGetProcessUtilization")
        row = raw.ask(fake, call)
        self.assertEqual((row["code"], row["value"][0], row["value"][1]["pid"]), (0, {"count": 1}, 42), row)
        self.assertEqual(rooms, [0, 100] * (1 + raw.REPEATS))


if __name__ == "__main__":
    unittest.main()
