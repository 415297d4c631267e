"""Tests of the few steps that torch's profiler records, and of the numbers that the hook computes from them."""

import gzip
import json
import sys
import unittest
from unittest import mock

import harness

try:
    import torch
except ImportError as missing:
    raise unittest.SkipTest("torch is not installed") from missing

sys.path.insert(0, str(harness.PYTHON))

from gputune._hook import trace_numbers, tracing  # noqa: E402


def event(kind, name, begin, length, thread=0, **args):
    return {"ph": "X", "cat": kind, "name": name, "ts": begin, "dur": length, "tid": thread, "args": args}


def kernel(name, begin, length, blocks, occupancy, stream=7):
    return event("kernel", name, begin, length, stream, **{"blocks per SM": blocks, "est. achieved occupancy %": occupancy})


class Numbers(unittest.TestCase):
    def test_of_kernels_in_two_streams_with_gaps_and_copies(self):
        events = [
            kernel("before", -50, 40, 9, 100),
            kernel("gemm", 0, 30, 4, 50),
            kernel("add", 40, 10, 0.25, 25),
            kernel("gemm", 60, 20, 0.5, 50),
            kernel("reduce", 70, 20, 0.25, 75, stream=8),
            event("gpu_memcpy", "Memcpy HtoD", 20, 20),
            event("cpu_op", "aten::mm", 0, 5),
            {"ph": "i", "name": "a moment", "ts": 3},
        ]
        found = trace_numbers.numbers(events, (0, 100))
        self.assertEqual(found["kind"], "kernels")
        self.assertEqual(found["top"], [("gemm", 0.625), ("reduce", 0.25), ("add", 0.125)])
        self.assertAlmostEqual(found["idle_share"], 0.3)
        self.assertAlmostEqual(found["copy_overlap"], 0.5)
        # Of 100 µs, all SMs are busy for 30, half for 10, three quarters (two streams) for 10, and a quarter for twice 10.
        self.assertAlmostEqual(found["sm_efficiency"], 0.475)
        self.assertAlmostEqual(found["occupancy"], (50 * 0.5 + 10 * 0.25 + 20 * 0.75) / 80)

    def test_of_operators_count_the_time_without_the_operators_within(self):
        events = [
            event("cpu_op", "aten::linear", 0, 10),
            event("cpu_op", "aten::addmm", 2, 6),
            event("cpu_op", "aten::mul", 10, 4),
            event("cpu_op", "aten::addmm", 0, 10, thread=1),
            event("user_annotation", "ProfilerStep#1", 0, 100),
        ]
        found = trace_numbers.numbers(events, (0, 100))
        self.assertEqual(found["kind"], "operators")
        self.assertEqual(found["top"], [("aten::addmm", 0.6667), ("aten::linear", 0.1667), ("aten::mul", 0.1667)])
        self.assertNotIn("idle_share", found)


class Recording(unittest.TestCase):
    def test_four_steps_are_kept_in_a_file_for_perfetto_and_tensorboard(self):
        result = harness.run("cnn.py", stop_after=25, experiment={"mode": "trace", "set": {}})
        self.assertEqual((result.code, result.errors), (0, []), result.output)
        facts = {name: value for name, value in result.facts.items() if name.startswith("trace.")}
        kind = "operators" if harness.DEVICE in ("cpu", harness.STAND_IN) else "kernels"
        self.assertEqual((facts["trace.steps"], facts["trace.kind"]), (4, kind), facts)
        self.assertGreater(facts["trace.step_seconds"], 0)
        names = [name for name, _ in json.loads(facts["trace.top"])]
        self.assertEqual(any(name.startswith("aten::") for name in names), kind == "operators", names)
        events = json.loads(gzip.decompress(result.files["trace.pt.trace.json.gz"]))["traceEvents"]
        steps = {event["name"] for event in events if event.get("name", "").startswith("ProfilerStep#")}
        self.assertEqual(len(steps), 4, steps)

    def test_a_profiler_that_fails_is_told_once_and_training_goes_on(self):
        hook = mock.Mock()
        recording = tracing.Tracing(hook, "")
        with mock.patch.object(torch.profiler, "profile", side_effect=RuntimeError("no CUPTI")) as profile:
            for hook.steps.number in range(1, 30):
                recording._end_step(False)
        profile.assert_called_once()
        hook.facts.say.assert_called_once_with("trace.error", "RuntimeError: no CUPTI")


if __name__ == "__main__":
    unittest.main()
