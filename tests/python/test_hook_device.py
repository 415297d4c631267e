"""The hook and a device: what is asked of it, who waits for it, and where it is decided that training runs there.

Runs on the stand-in (`card`), whose events are late and whose forked children fail, and with GPUTUNE_TEST_DEVICE on a real
device.
"""

import unittest

import harness

try:
    import torch  # noqa: F401
except ImportError as missing:
    raise unittest.SkipTest("torch is not installed") from missing

from card import tensors

DEVICE = harness.DEVICE if harness.DEVICE != "cpu" else harness.STAND_IN

PRECISION = "torch.precision"
needs_stand_in = unittest.skipUnless(DEVICE == harness.STAND_IN, "the stand-in says who asks and who waits")


def setUpModule():
    if DEVICE == harness.STAND_IN and tensors.missing() is not None:
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
        result = self.run_images(apply, experiment={"mode": "observe", "set": {}}, FORK=1, VISIBLE="1", CARD_DEVICES=2)
        self.assertEqual(result.applied, set(apply))
        self.assertEqual(len(result.steps), 24)
        self.assertEqual(len(result.losses), 16)
        self.assertIn("child 2.0\ndevices 1\n", result.output)
        self.assertIn("epoch 1 right", result.output)
        self.assertIn("cuda torch.bfloat16", result.output)
        self.assertIn("host_to_device", result.phases)
        asked = [entry for entry in result.card if entry["kind"] == "ask"]
        own = next(entry for entry in asked if entry["by"] == "script")
        before = [entry for entry in asked if entry["by"] == "hook" and entry["time"] <= own["time"]]
        self.assertEqual(before, [])
        self.assertEqual({entry["pid"] for entry in asked if entry["by"] == "hook"}, {result.events[0]["pid"]})


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

    def test_a_region_on_the_cpu_says_nothing_of_training_on_a_device(self):
        result = harness.run(
            "images.py", {PRECISION: "bf16"}, None, {"DRY_RUN": "1", "FUNCTION": "1", "EPOCHS": "1"}, device=DEVICE
        )
        self.assertEqual((result.code, result.applied), (0, set()), result.output)
        self.assertEqual([kind for kind, _ in result.errors], ["not_applied"])


class Waiting(OnADevice):
    def test_loading_goes_on_while_the_device_works_and_is_no_wait_for_data(self):
        result = self.run_images(WORKERS=0, LOAD=300, STEP=520, STEPS=8, EPOCHS=1)
        milliseconds = float(result.output.split("milliseconds a step ")[1].split()[0])
        self.assertLess(milliseconds, 760)  # 820 where one waits for the other
        self.assertLess(self.share(result, "data_wait"), 0.3)  # 0.58 by the host's clock
        self.assertEqual(len(result.losses), 8)

    def test_a_device_that_waits_for_data_says_so(self):
        result = self.run_images(WORKERS=0, LOAD=150, STEP=10, STEPS=8, EPOCHS=1)
        self.assertGreater(self.share(result, "data_wait"), 0.7)


class Replaying(OnADevice):
    def test_each_replay_of_a_graph_makes_the_steps_that_were_captured(self):
        result = harness.run("graph.py", stop_after=None, device=DEVICE)
        self.assertEqual((result.code, result.errors), (0, []), result.output)
        self.assertEqual([step["samples"] for step in result.steps], [16] * 23)
        self.assertGreaterEqual(len(result.losses), 16)


if __name__ == "__main__":
    unittest.main()
