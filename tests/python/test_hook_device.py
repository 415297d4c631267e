"""The hook and a device: what is asked of it, who waits for it, and where it is decided that training runs there.

Runs on the stand-in (`card`), whose events are late and whose forked children fail, and with GPUTUNE_TEST_DEVICE on a real
device.
"""

import importlib.util
import json
import sys
import unittest

import harness

try:
    import torch  # noqa: F401
except ImportError as missing:
    raise unittest.SkipTest("torch is not installed") from missing

sys.path.insert(0, str(harness.PYTHON))

from card import tensors  # noqa: E402
from gputune._hook.install import TARGETS  # noqa: E402

DEVICE = harness.DEVICE if harness.DEVICE != "cpu" else harness.STAND_IN

PRECISION = "torch.precision"
#: Of each target all values that go different ways.
VALUES = {
    PRECISION: ("fp16", "bf16", "tf32", "fp32"),
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
        """After the first step nothing of the hook waits for the device, but for what is left when the script is over."""
        first = result.steps[0]["time"]
        waits = [entry for entry in result.card if entry["kind"] == "wait" and entry["by"] == "hook"]
        late = [entry for entry in waits if entry["seconds"] > 1e-3 and entry["time"] > first]
        self.assertEqual([entry for entry in late if not entry["where"].endswith(" wait")], [])
        self.assertLessEqual(len(late), 1)

    def share(self, result, name):
        """Of the time of the steps, without the first."""
        seconds, step = 0.0, 0
        for event in result.events:
            step += event["event"] == "step"
            if event["event"] == "phase" and event["name"] == name and step > 0:
                seconds += event["seconds"]
        return seconds / (result.steps[-1]["time"] - result.steps[0]["time"])


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
        """What a script that tries its model on the CPU asks CUDA first, with and without the hook."""
        env = {"DRY_RUN": "1", "EPOCHS": "1", "STEPS": "3", "WORKERS": "0", **env}
        result = harness.run("images.py", apply, stop_after=None, env=env, device=DEVICE, has_probe=apply is not None)
        self.assertEqual(result.code, 0, result.output)
        first = next(entry for entry in result.card if entry["kind"] == "ask")
        return result, (first["name"], first["by"], first["where"])

    @needs_stand_in
    def test_no_target_asks_before_the_script_asks_or_waits_for_its_steps(self):
        # Inductor has no compiler for the stand-in; what it cannot compile runs as it is.
        env = {"TORCHDYNAMO_SUPPRESS_ERRORS": "1", "STEP": "20"}
        self.assertEqual(set(VALUES), {target.name for target in TARGETS})
        _, own = self.first_question(None)
        for number in range(max(map(len, VALUES.values()))):
            apply = {name: values[number % len(values)] for name, values in VALUES.items()}
            with self.subTest(apply):
                result, first = self.first_question(apply, **env)
                self.assertEqual(first, own)
                self.assertNoWait(result)
                is_on = apply[PRECISION] != "fp32"  # the script leaves torch's default: False, True
                self.assertIn(f"tf32 {is_on} {is_on}\n", result.output)
                others = {"torch.sdpa", "torch.checkpoint", *(name for name in apply if name.startswith(("ddp.", "fsdp.")))}
                self.assertEqual(result.applied - {"torch.checkpoint"}, set(apply) - others)


class Moving(OnADevice):
    def test_a_try_on_the_cpu_before_the_model_is_moved_and_copies_in_a_stream_of_their_own(self):
        result = self.run_images({PRECISION: "bf16"}, DRY_RUN=1, PREFETCH=1, WORKERS=0, STEP=20)
        self.assertEqual(result.applied, {PRECISION})
        self.assertIn("seen ['cuda torch.bfloat16', 'cuda torch.float32']", result.output)  # the evaluation is the script's
        self.assertEqual(result.facts["precision"], "bf16")
        self.assertEqual(len(result.steps), 24)
        if DEVICE == harness.STAND_IN:
            made = int(result.output.split("events ")[1])
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
    """What a class of tensors of its own is told of a function of torch is that function, whatever stands around it."""

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
        self.assertLess(milliseconds, 760)  # 820 where one waits for the other
        self.assertLess(self.share(result, "data_wait"), 0.3)  # 0.58 by the host's clock
        self.assertEqual(len(result.losses), 8)

    def test_a_scale_of_the_hook_waits_for_no_step_with_a_fused_optimizer(self):
        apply = {PRECISION: "fp16", "torch.fused_optimizer": True}
        result = self.run_images(apply, WORKERS=0, STEP=40, STEPS=8, EPOCHS=1)
        self.assertEqual(result.applied, set(apply))

    def test_a_device_that_waits_for_data_says_so(self):
        result = self.run_images(WORKERS=0, LOAD=150, STEP=10, STEPS=8, EPOCHS=1)
        self.assertGreater(self.share(result, "data_wait"), 0.7)

    def test_what_another_thread_waits_for_counts_as_far_as_the_device_has_nothing_to_do(self):
        for load, step, least, most in ((90, 110, 0.0, 0.2), (150, 10, 0.6, 1.0)):
            with self.subTest(load=load, step=step):
                result = self.run_images(WORKERS=0, LOAD=load, STEP=step, STEPS=12, EPOCHS=1, THREAD=1)
                share = self.share(result, "data_wait")
                self.assertGreaterEqual(share, least)
                self.assertLess(share, most)


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
