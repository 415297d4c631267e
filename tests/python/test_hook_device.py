"""Tests of the hook on a device: its calls to the device, its waits for it, and how it finds the training device.

Runs on the stand-in (`card`), whose events complete late and whose forked children fail. With GPUTUNE_TEST_DEVICE it runs on a
real device.
"""

import importlib.util
import json
import os
import pickle
import statistics
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import harness

try:
    import torch  # noqa: F401
except ImportError as missing:
    raise unittest.SkipTest("torch is not installed") from missing

sys.path.insert(0, str(harness.PYTHON))

from card import tensors  # noqa: E402
from gputune._hook import memory_snapshot, step_queue  # noqa: E402
from gputune._hook.install import TARGETS  # noqa: E402
from gputune._hook.memory import Memory as MemoryReports  # noqa: E402

DEVICE = harness.DEVICE if harness.DEVICE != "cpu" else harness.STAND_IN

PRECISION = "torch.precision"
#: For each target the values that take different code paths in the hook.
VALUES = {
    PRECISION: ("fp16", "bf16", "tf32", "fp32", "bf16-true"),
    "torch.compile": ("default", "off"),
    "torch.compile_dynamic": ("always", "auto"),
    "torch.channels_last": (True, False),
    "torch.cudnn_benchmark": (True, False),
    "torch.fused_optimizer": (True, False),
    "torch.sdpa": ("flash", "memory-efficient", "math", "cudnn"),
    "torch.grad_accumulation": (2, 1),
    "torch.checkpoint": (True, False),
    "dataloader.batch_size": (4, 8),
    "dataloader.num_workers": (1, 2),
    "dataloader.pin_memory": (True, False),
    "dataloader.prefetch_factor": (3,),
    "dataloader.persistent_workers": (True, False),
    "dataloader.in_order": (False, True),
    "dataloader.multiprocessing_context": ("fork",),
    "ddp.bucket_cap_mb": (8,),
    "ddp.gradient_as_bucket_view": (True,),
    "ddp.static_graph": (True,),
    "ddp.compression": ("fp16",),
    "fsdp.reshard_after_forward": (True,),
    "fsdp.prefetch_depth": (1,),
    "fsdp.sharding_strategy": ("FULL_SHARD",),
}
needs_stand_in = unittest.skipUnless(DEVICE == harness.STAND_IN, "the stand-in says who asks and who waits")


def setUpModule():
    if DEVICE == harness.STAND_IN and tensors.missing() is not None:
        print(f"SKIPPED: {__name__}: {tensors.missing()}", file=sys.stderr, flush=True)
        raise unittest.SkipTest(tensors.missing())


class OnADevice(unittest.TestCase):
    def run_images(self, apply=None, stop_after=None, experiment=None, **env):
        settings = {name: str(value) for name, value in env.items()}
        result = harness.run(
            "images.py", apply, stop_after=stop_after, env=settings, device=DEVICE, experiment=experiment
        )
        self.assertEqual((result.code, result.errors), (0, []), result.output)
        self.assertEqual(result.facts["device"], "cuda")
        self.assertNoWait(result)
        return result

    def assertNoWait(self, result):
        """Checks that the hook waits at most twice after the first step: to empty the cache, and at the end of the script."""
        first = result.steps[0]["time"]
        waits = [entry for entry in result.card if entry["kind"] == "wait" and entry["by"] == "hook"]
        late = [entry for entry in waits if entry["seconds"] > 1e-3 and entry["time"] > first]
        emptied = [entry for entry in late if entry["name"] == "empty_cache"]
        self.assertLessEqual(len(emptied), 1, "the cache is emptied once, in a marked step")
        late = [entry for entry in late if entry not in emptied]
        self.assertEqual([entry for entry in late if not entry["where"].endswith(" wait")], [])
        self.assertLessEqual(len(late), 1)

    def share(self, result, name):
        """The share of a phase in the time of the timed steps, without the first step and steps in which the machine paused."""
        current = 0.0
        ended, steps = None, []
        for event in result.events:
            if event["event"] == "phase" and event["name"] == name:
                current += event["seconds"]
            elif event["event"] == "step":
                if ended is not None and event.get("timed", True):
                    steps.append((event["time"] - ended, current))
                ended, current = event["time"], 0.0
        usual = statistics.median(length for length, _ in steps)
        steps = [(length, told) for length, told in steps if length < 3 * usual]
        return sum(told for _, told in steps) / sum(length for length, _ in steps)


class Cost(OnADevice):
    @needs_stand_in
    def test_marks_that_are_dear_are_made_in_a_few_steps_and_around_all_evaluations(self):
        result = self.run_images(WORKERS=0, STEPS=200, EPOCHS=2, CARD_EVENT_MICROSECONDS=300)
        timed = [step.get("timed", True) for step in result.steps]
        self.assertEqual(timed[:3], [True] * 3)
        self.assertLess(timed.count(True), 0.1 * len(timed))
        self.assertGreaterEqual(timed.count(True), 5, "phases are known in any case")
        self.assertLess(int(result.output.split("recorded ")[1].split()[0]), 3 * len(timed))
        self.assertLessEqual({"forward", "backward", "optimizer", "host_to_device", "evaluation"}, result.phases)
        self.assertTrue(all(later["time"] > step["time"] for step, later in zip(result.steps, result.steps[1:])))
        for before, event in zip(result.events, result.events[1:]):
            if event["event"] == "step" and not event.get("timed", True):
                self.assertTrue(before["event"] != "phase" or before["name"] == "data_wait", before)


    @needs_stand_in
    def test_short_steps_share_marks_and_all_marks_cost_half_a_percent(self):
        cost = 100e-6
        result = self.run_images(WORKERS=1, STEPS=300, EPOCHS=2, CARD_EVENT_MICROSECONDS=1e6 * cost)
        self.assertEqual(len(result.steps), 600)
        wall = result.steps[-1]["time"] - result.steps[0]["time"]
        recorded = int(result.output.split("recorded ")[1].split()[0])
        # The limit does not count the marks of warm-up, evaluations and the first estimate of the cost: about 120.
        self.assertLess((recorded - 120) * cost / wall, 0.006, recorded)
        times = [step["time"] for step in result.steps]
        self.assertTrue(all(later > earlier for earlier, later in zip(times, times[1:])))
        self.assertIn("epoch_edge", result.phases)


class Queue(unittest.TestCase):
    def test_steps_without_a_mark_divide_the_time_between_two_marks_by_the_host(self):
        clock = mock.Mock(**{"time_of.side_effect": float, "is_reached.side_effect": lambda mark: mark < 30})
        steps = step_queue.StepQueue()
        for number, (end, ended) in enumerate([(10.0, 1.0), (None, 2.0), (None, 4.0), (18.0, 5.0), (None, 7.0), (31.0, 8.0)]):
            steps.add(step_queue.Step(number, clock, end, ended, None, (0.0, 0.0), [], [], []))

        def times(found):
            taken = []
            for step in found:
                step.time = step.end or step.time
                taken.append(step.time)
            return taken

        self.assertEqual(times(steps.finished()), [10.0, 12.0, 16.0, 18.0])
        self.assertEqual(times(steps.finished()), [], "the device has not reached the next mark")
        clock.is_reached.side_effect = None
        self.assertEqual(times(steps.finished()), [18.0 + 13 * 2 / 3, 31.0])
        steps.add(step_queue.Step(9, clock, None, 9.5, None, (0.0, 0.0), [], [], []))
        steps.wait()
        clock.wait.assert_called_once_with(clock.mark_end())
        self.assertEqual(times(steps.rest()), [32.5])


class Asking(OnADevice):
    @needs_stand_in
    def test_an_image_script_with_transforms_in_workers_and_a_device_that_forked_children_must_not_touch(self):
        apply = {PRECISION: "bf16", "torch.cudnn_benchmark": True, "dataloader.pin_memory": True}
        transforms = {} if importlib.util.find_spec("torchvision") is None else {"TORCHVISION": "1"}
        if not transforms:
            print(f"SKIPPED: {self.id()}: torchvision's own transforms", file=sys.stderr, flush=True)
        observing = {"mode": "observe", "set": {}}
        result = self.run_images(apply, experiment=observing, FORK=1, VISIBLE="1", CARD_DEVICES=2, **transforms)
        self.assertEqual(result.applied, set(apply))
        self.assertEqual(len(result.steps), 24)
        self.assertGreaterEqual(len(result.losses), 16)
        self.assertIn("child 2.0\ndevices 1\n", result.output)
        self.assertIn("epoch 1 right", result.output)
        self.assertIn("cuda torch.bfloat16", result.output)
        self.assertIn("host_to_device", result.phases)
        asked = [entry for entry in result.card if entry["kind"] == "ask"]
        own = next(entry for entry in asked if entry["by"] == "script")
        before = [entry for entry in asked if entry["by"] == "hook" and entry["time"] <= own["time"]]
        self.assertEqual(before, [])
        self.assertEqual({entry["pid"] for entry in asked if entry["by"] == "hook"}, {result.events[0]["pid"]})


    def first_question(self, apply, **env):
        """The first call to CUDA of a script that tries its model on the CPU. It runs without the hook if `apply` is `None`."""
        env = {"DRY_RUN": "1", "EPOCHS": "1", "STEPS": "3", "WORKERS": "0", **env}
        result = harness.run("images.py", apply, stop_after=None, env=env, device=DEVICE, has_probe=apply is not None)
        self.assertEqual(result.code, 0, result.output)
        first = next(entry for entry in result.card if entry["kind"] == "ask")
        return result, (first["name"], first["by"], first["where"])

    @needs_stand_in
    def test_no_target_asks_before_the_script_asks_or_waits_for_its_steps(self):
        # Inductor has no compiler for the stand-in: code that cannot be compiled runs uncompiled.
        env = {"TORCHDYNAMO_SUPPRESS_ERRORS": "1", "STEP": "20"}
        self.assertEqual(set(VALUES), {target.name for target in TARGETS})
        _, own = self.first_question(None)
        for number in range(max(map(len, VALUES.values()))):
            apply = {name: values[number % len(values)] for name, values in VALUES.items()}
            with self.subTest(apply):
                result, first = self.first_question(apply, **env)
                self.assertEqual(first, own)
                self.assertNoWait(result)
                is_on = apply[PRECISION] != "fp32"  # the hook sets both; torch's defaults are False and True
                self.assertIn(f"tf32 {is_on} {is_on}\n", result.output)
                others = {"torch.sdpa", "torch.checkpoint", *(name for name in apply if name.startswith(("ddp.", "fsdp.")))}
                self.assertEqual(result.applied - {"torch.checkpoint"}, set(apply) - others)


#: A stand-in for torchao.float8 with the one function that the hook calls. It replaces layers in place, with their parameters.
TORCHAO = """
from torch import nn


class Float8Linear(nn.Linear):
    pass


def convert_to_float8_training(module, *, module_filter_fn):
    for name, part in module.named_modules():
        if module_filter_fn(part, name):
            part.__class__ = Float8Linear
    return module
"""


class Weights(OnADevice):
    def test_weights_and_the_state_of_the_optimizer_are_bfloat16(self):
        env = {"WORKERS": "0", "EPOCHS": "2", "STEPS": "6", "ADAM": "1"}
        result = harness.run("images.py", {PRECISION: "bf16-true"}, stop_after=None, env=env, device=DEVICE)
        self.assertEqual((result.code, result.errors), (0, []), result.output)
        self.assertEqual((result.applied, result.facts["precision"]), ({PRECISION}, "bf16"))
        self.assertIn("weights torch.bfloat16 state torch.bfloat16", result.output)
        self.assertIn("seen ['cuda torch.bfloat16']", result.output)  # in training and in evaluation
        self.assertIn("outputs torch.float32", result.output)
        full = harness.run("images.py", {PRECISION: "fp32"}, stop_after=None, env=env, device=DEVICE)
        self.assertIn("weights torch.float32 state torch.float32", full.output)
        for loss, other in zip(full.losses, result.losses):
            self.assertAlmostEqual(loss, other, delta=0.05)

    @needs_stand_in
    def test_float8_needs_torchao_and_a_card_that_has_it(self):
        def refused(**env):
            settings = {"WORKERS": "0", "EPOCHS": "1", "STEPS": "3", "SEVERAL": "1", **env}
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "torchao").mkdir()
                Path(folder, "torchao", "__init__.py").write_text("")
                Path(folder, "torchao", "float8.py").write_text(TORCHAO)
                path = (folder,) if "TORCHAO" in env else ()
                result = harness.run(
                    "images.py", {PRECISION: "fp8"}, None, settings, device=DEVICE, path=path
                )
            return result, [message for kind, message in result.errors if kind == "rejected"]

        result, messages = refused(TORCHAO="1")
        self.assertEqual((messages, result.applied, result.facts["precision"]), ([], {PRECISION}, "fp8"), result.output)
        self.assertIn("layers ['Float8Linear', 'Linear']", result.output)
        self.assertIn("seen ['cuda torch.bfloat16', 'cuda torch.float32']", result.output)
        _, (message,) = refused()
        self.assertIn("fp8 needs the package torchao, which is not installed", message)
        _, (message,) = refused(TORCHAO="1", CARD_CAPABILITY="8.6")
        self.assertIn("fp8 needs a GPU of compute capability 8.9 or later", message)
        _, (message,) = refused(TORCHAO="1", SEVERAL="")
        self.assertIn("no linear layer within Net has sizes that are multiples of 16", message)


class Moving(OnADevice):
    def test_a_try_on_the_cpu_before_the_model_is_moved_and_copies_in_a_stream_of_their_own(self):
        result = self.run_images({PRECISION: "bf16"}, DRY_RUN=1, PREFETCH=1, WORKERS=0, STEP=20)
        self.assertEqual(result.applied, {PRECISION})
        # The evaluation keeps the script's precision, fp32.
        self.assertIn("seen ['cuda torch.bfloat16', 'cuda torch.float32']", result.output)
        self.assertEqual(result.facts["precision"], "bf16")
        self.assertEqual(len(result.steps), 24)
        if DEVICE == harness.STAND_IN:
            made = int(result.output.split("events ")[1].split()[0])
            self.assertLess(made, 300, "events are kept for copies that are none")

    def test_parameters_that_stay_on_the_host(self):
        for env in ({}, {"OFFLOAD": "1"}):
            with self.subTest(env):
                result = harness.run("offload.py", {PRECISION: "bf16"}, stop_after=None, env=env, device=DEVICE)
                self.assertEqual((result.code, result.errors), (0, []), result.output)
                self.assertEqual((result.applied, result.facts["device"]), ({PRECISION}, "cuda"))
                self.assertIn("seen ['cuda torch.bfloat16']", result.output)

    def test_a_region_on_the_cpu_says_nothing_of_training_on_a_device(self):
        result = harness.run(
            "images.py", {PRECISION: "bf16"}, None, {"DRY_RUN": "1", "FUNCTION": "1", "EPOCHS": "1"}, device=DEVICE
        )
        self.assertEqual((result.code, result.applied), (0, set()), result.output)
        self.assertEqual([kind for kind, _ in result.errors], ["not_applied"])


class Subclasses(OnADevice):
    """Tensor subclasses receive torch's own functions in `__torch_function__`, although the hook wraps these functions."""

    def check(self, experiment, **env):
        result = harness.run("subclasses.py", stop_after=None, env=env, device=DEVICE, experiment=experiment)
        self.assertEqual((result.code, result.errors), (0, []), result.output)
        self.assertEqual(result.facts["device"], "cuda")
        self.assertIn("lazy cuda\nlazy torch.Size([1, 2])\n", result.output)
        self.assertIn("seen ['to', 'cpu', 'cuda']", result.output)
        copies = [event for event in result.events if event.get("name") == "host_to_device"]
        self.assertGreaterEqual(len(copies), 2)
        return result

    def test_classes_and_lazy_layers(self):
        self.check(None)

    def test_images_of_torchvision_while_waits_are_counted(self):
        if importlib.util.find_spec("torchvision") is None:
            harness.skip_loudly(self, "torchvision is not installed")
        result = self.check({"mode": "observe", "set": {}}, TORCHVISION="1")
        self.assertIn("kinds ['Image', 'Image', 'Image', 'Image']", result.output)


class Waiting(OnADevice):
    def test_loading_goes_on_while_the_device_works_and_is_no_wait_for_data(self):
        result = self.run_images(WORKERS=0, LOAD=300, STEP=520, STEPS=8, EPOCHS=1)
        milliseconds = float(result.output.split("milliseconds a step ")[1].split()[0])
        self.assertLess(milliseconds, 760)  # 820 if loading and the device took turns
        self.assertLess(self.share(result, "data_wait"), 0.3)  # 0.58 if the host's clock measured the wait
        self.assertEqual(len(result.losses), 8)

    def test_a_scale_of_the_hook_waits_for_no_step_with_a_fused_optimizer(self):
        apply = {PRECISION: "fp16", "torch.fused_optimizer": True}
        result = self.run_images(apply, WORKERS=0, STEP=40, STEPS=8, EPOCHS=1)
        self.assertEqual(result.applied, set(apply))

    def test_a_device_that_waits_for_data_says_so(self):
        result = self.run_images(WORKERS=0, LOAD=150, STEP=10, STEPS=8, EPOCHS=1)
        self.assertGreater(self.share(result, "data_wait"), 0.7)

    def test_what_another_thread_waits_for_counts_as_far_as_the_device_has_nothing_to_do(self):
        # By the host's clock the share of the first case would be 0.45. Other tests on the same device make its wait longer.
        for load, step, least, most in ((90, 110, 0.0, 0.35), (150, 10, 0.6, 1.0)):
            with self.subTest(load=load, step=step):
                result = self.run_images(WORKERS=0, LOAD=load, STEP=step, STEPS=12, EPOCHS=1, THREAD=1)
                share = self.share(result, "data_wait")
                self.assertGreaterEqual(share, least)
                self.assertLess(share, most)


@needs_stand_in
class Memory(OnADevice):
    """Runs only on the stand-in, whose allocator counts only the requests of the script."""

    GIB = 1 << 30

    def run_memory(self, segments=(), stop_after=None, apply=None, **env):
        settings = {name: str(value) for name, value in env.items()}
        return harness.run(
            "memory.py", apply, stop_after=stop_after, env=settings, device=DEVICE, segments=segments
        )

    def peaks(self, result, name="reserved"):
        """For each report the steps before it, `goes_on`, and the peak in GiB.

        `goes_on` is false if the peaks were reset since the last report.
        """
        steps, found = 0, []
        for event in result.events:
            steps += event["event"] == "step"
            if event["event"] == "memory" and event["device"] == 0:
                found.append((steps, event["goes_on"], event[name] / self.GIB))
        return found

    def test_the_cache_of_warm_up_is_no_steady_peak_and_the_peaks_of_the_script_are_reset_once(self):
        result = self.run_memory(TUNING=20)
        self.assertEqual((result.code, result.errors), (0, []), result.output)
        peaks = self.peaks(result)
        begins = [place for place, (_, goes_on, _) in enumerate(peaks) if not goes_on]
        self.assertEqual((len(begins), peaks[begins[0]][0]), (2, 0))
        self.assertIn(peaks[begins[1]][0], range(3, 7), "the next report after warm-up, which is due after 0.15 s")
        self.assertEqual({peak for _, _, peak in peaks[: begins[1]]}, {23.0})
        self.assertEqual({peak for _, _, peak in peaks[begins[1] :]}, {3.0})
        self.assertIn("memory", [event["name"] for event in result.named("mark")])
        resets = [entry for entry in result.card if (entry["kind"], entry["name"]) == ("memory", "reset_peak_memory_stats")]
        self.assertEqual(len(resets), 1)
        self.assertIn("peak 3.0", result.output)
        parts = [result.facts[f"memory.{part}"] / self.GIB for part in ("allocated", "active", "reserved", "inactive_split")]
        self.assertEqual(parts, [3.0, 3.0, 3.0, 0.0])
        self.assertEqual(result.facts["memory.fragmentation"], 0.0)

    def test_a_script_that_reports_its_steps_leaves_the_memory_to_the_hook(self):
        result = self.run_memory(OWN_STEPS=1, TUNING=20)
        self.assertEqual((result.code, result.errors), (0, []), result.output)
        self.assertTrue(all("in_use" in event for event in result.named("memory")), "all reports are the hook's")
        resets = [entry for entry in result.card if (entry["kind"], entry["name"]) == ("memory", "reset_peak_memory_stats")]
        self.assertEqual((len(resets), self.peaks(result)[-1][2]), (1, 3.0))

    def test_the_memory_that_tensors_hold_is_reported_often_enough_to_see_it_grow(self):
        for leak in (0, 0.125):
            result = self.run_memory(STEPS=30, **({"LEAK": leak} if leak else {}))
            self.assertEqual((result.code, result.errors), (0, []), result.output)
            in_use = [(steps, held) for steps, _, held in self.peaks(result, "in_use") if steps > 3]
            self.assertGreaterEqual(len(in_use), 4)
            first = in_use[0][1] - in_use[0][0] * leak
            # A report of memory may come before the report of its step, so the numbers may differ by one step.
            self.assertTrue(all(abs(held - first - steps * leak) <= leak for steps, held in in_use), in_use)

    def test_a_smaller_batch_in_the_same_process_does_not_count_the_larger_batch_that_the_script_still_holds(self):
        size = "dataloader.batch_size"
        result = self.run_memory(({size: 8},), 15, {size: 64}, STEPS=1000)
        self.assertEqual((result.code, result.errors), (0, []), result.output)
        large, small = (self.peaks(part) for part in result.segments)
        self.assertEqual((large[-1][2], small[-1][2]), (17.0, 3.0))
        self.assertGreaterEqual(small[0][2], 10.0, "the first step still holds the larger batch")
        self.assertEqual([goes_on for _, goes_on, _ in small][:1], [False])

    def test_retries_are_told_from_the_start_of_the_process_on(self):
        result = self.run_memory(EARLY=200)
        retries = [event["retries"] for event in result.named("memory")]
        self.assertEqual(set(retries), {2})  # one retry and one error, both before the first report
        result = self.run_memory(TRIED=200, TRY=30)
        retries = [event["retries"] for event in result.named("memory")]
        self.assertEqual((retries[0], retries[-1]), (0, 2))

    def test_capacity_is_what_the_script_allows_itself(self):
        result = self.run_memory(FRACTION=0.25)
        # A quarter of 80 GiB, and 1 GiB of the context, which the allocator does not count.
        self.assertEqual({event["capacity"] / self.GIB for event in result.named("memory")}, {21.0})

    def test_two_devices_of_a_process_are_told_apart(self):
        result = self.run_memory(SECOND=7, CARD_DEVICES=2)
        last = {event["device"]: event["reserved"] / self.GIB for event in result.named("memory")}
        self.assertEqual(last, {0: 3.0, 1: 7.0})
        self.assertEqual(result.facts["memory.reserved"], 7.0 * self.GIB)

    def test_the_blocks_of_the_allocator_are_kept_if_memory_runs_out(self):
        result = self.run_memory(FULL=200)
        self.assertEqual([kind for kind, _ in result.errors], ["out_of_memory"], result.output)
        snapshot = pickle.loads(result.files["memory.pickle"])
        sizes = sorted(segment["allocated_size"] / self.GIB for segment in snapshot["segments"])
        self.assertEqual(sizes, [1.0, 1.0])

    def test_memory_that_the_allocator_holds_and_no_tensor_uses_is_told(self):
        result = self.run_memory(TRIED=20, FULL=30, TRY=10)  # FULL's 30 GiB do not fit into TRIED's cached 20 GiB
        self.assertNotIn("memory.pickle", result.files)
        allocated, reserved = (result.facts[f"memory.{part}"] / self.GIB for part in ("allocated", "reserved"))
        self.assertEqual((allocated, reserved), (33.0, 53.0))
        self.assertAlmostEqual(result.facts["memory.fragmentation"], 20 / 53)

    def test_a_snapshot_that_is_too_large_is_not_kept(self):
        for most_bytes, most_blocks, is_kept in ((5, 9, True), (4, 9, False), (5, 1, False)):
            with tempfile.TemporaryDirectory() as folder, mock.patch.multiple(
                memory_snapshot,
                MOST_BYTES=most_bytes,
                MOST_BLOCKS=most_blocks,
                Reporter=mock.Mock(**{"current.return_value.folder": folder}),
                is_in_use=lambda kind: True,
                _blocks=lambda: 2,
            ), mock.patch.object(torch.cuda.memory, "_dump_snapshot", lambda path: Path(path).write_bytes(b"12345")):
                memory_snapshot.MemorySnapshot().write()
                self.assertEqual(os.listdir(folder), ["memory.pickle"] if is_kept else [])

    def test_a_failed_allocation_is_reported_once_ahead_of_the_next_report(self):
        session, stats = mock.Mock(), {"num_ooms": 2}
        module = mock.Mock(**{"device_count.return_value": 1, "memory_stats.return_value": stats})
        memory = MemoryReports(session, mock.Mock())
        memory._module = module
        self.assertTrue(memory.report_failures() and memory.report_failures())
        session.send.assert_called_once_with("memory", device=0, failures=2)
        stats["num_ooms"] = 3
        self.assertTrue(memory.report_failures())
        session.send.assert_called_with("memory", device=0, failures=1)

    def test_a_missing_engine_is_lack_of_memory_only_if_an_allocation_has_just_failed(self):
        for env, kinds, has_failed in (
            ({}, ["failed"], False),
            ({"TRIED": 200, "TRY": 1}, ["out_of_memory"], True),
            ({"TRIED": 200, "CAUGHT": 1}, [], True),  # gputune then reads the script's output
            ({"EARLY": 200, "TRY": 30}, ["failed"], False),
        ):
            with self.subTest(env):
                result = self.run_memory(ENGINE=1, **env)
                self.assertEqual((result.code, [kind for kind, _ in result.errors]), (1, kinds), result.output)
                self.assertEqual("memory.pickle" in result.files, "out_of_memory" in kinds or "CAUGHT" in env)
                told = [event["failures"] > 0 for event in result.named("memory")]
                self.assertEqual(bool(told) and told[-1], has_failed)


@needs_stand_in
class Compiling(OnADevice):
    """Gradient accumulation with the compiler's CUDA graphs, which overwrite the gradients of the previous run.

    On a real GPU, where compiling takes long, a script of `gpu/acceptance` checks this.
    """

    def losses(self, apply, **env):
        result = harness.run("transformer.py", apply, stop_after=None, env=env, device=DEVICE)
        self.assertEqual((result.code, result.errors), (0, []), result.output)
        self.assertEqual(result.applied, set(apply))
        return result.losses + [float(result.output.split("weights ")[1].split()[0])]

    def test_parts_of_a_batch_add_up_under_graphs(self):
        accumulation = {"torch.grad_accumulation": 4}
        alone = self.losses(accumulation)
        for apply, env in (
            ({**accumulation, "torch.compile": "reduce-overhead"}, {}),
            ({**accumulation, "torch.compile": "max-autotune-no-cudagraphs"}, {}),
            (accumulation, {"MODE": "max-autotune"}),
        ):
            with self.subTest(apply, env=env):
                for one, other in zip(alone, self.losses(apply, **env), strict=True):
                    self.assertAlmostEqual(one, other, places=4)

    def test_gradients_that_the_script_adds_up_itself_add_up_under_graphs(self):
        alone = self.losses({}, PARTS="2")
        for apply in ({"torch.compile": "reduce-overhead"}, {"torch.compile": "max-autotune", "torch.grad_accumulation": 1}):
            with self.subTest(apply):
                for one, other in zip(alone, self.losses(apply, PARTS="2"), strict=True):
                    self.assertAlmostEqual(one, other, places=4)

    def test_the_stand_in_overwrites_gradients_of_a_graph_as_torch_does(self):
        env = {"MODE": "reduce-overhead", "PARTS": "2"}
        result = harness.run("transformer.py", stop_after=None, env=env, device=DEVICE, has_probe=False)
        self.assertEqual(result.code, 1)
        self.assertIn("overwritten by a subsequent run", result.output)


class Replaying(OnADevice):
    def test_a_loss_that_the_next_step_overwrites_is_that_of_its_own_step(self):
        result = harness.run("static_loss.py", stop_after=None, device=DEVICE)
        self.assertEqual((result.code, result.errors), (0, []), result.output)
        self.assertEqual(result.losses, json.loads(result.output.split("losses ")[1].splitlines()[0]))

    def test_each_replay_of_a_graph_makes_the_steps_that_were_captured(self):
        result = harness.run("graph.py", stop_after=None, device=DEVICE)
        self.assertEqual((result.code, result.errors), (0, []), result.output)
        self.assertEqual([step["samples"] for step in result.steps], [16] * 23)
        self.assertGreaterEqual(len(result.losses), 16)

    def test_a_scale_that_is_no_part_of_the_graph_is_refused(self):
        result = harness.run("graph.py", {PRECISION: "fp16"}, stop_after=None, device=DEVICE)
        self.assertEqual((result.code, [kind for kind, _ in result.errors]), (0, ["rejected"]), result.output)
        self.assertIn("CUDA graph", result.errors[0][1])


if __name__ == "__main__":
    unittest.main()
