"""Tests of the floating-point operations of a step, which the hook counts once."""

import unittest

import harness

try:
    import torch
except ImportError as missing:
    raise unittest.SkipTest("torch is not installed") from missing

try:
    from torch.utils.flop_counter import flop_registry
except ImportError as missing:
    raise unittest.SkipTest("this torch has no formulas") from missing

#: Operations of the model `linear` for each sample: forward, the gradients of both weights, and of the hidden layer.
LINEAR = 2 * (32 * 64 + 64 * 8) * 2 + 2 * 64 * 8


class Flops(unittest.TestCase):
    def counted(self, result):
        """The different numbers of operations that steps report. The first two steps end before the number is known."""
        self.assertEqual(result.errors, [], result.output)
        self.assertFalse(any("flops" in step for step in result.steps[:1]))
        return {step.get("flops") for step in result.steps[2:]}

    def test_a_step_is_counted_once_and_has_a_mark(self):
        result = harness.run("flops.py", stop_after=20)
        self.assertEqual(self.counted(result), {16 * LINEAR})
        marked = [event["event"] for event in result.events if event["event"] == "step" or event.get("name") == "flops"]
        # Only the second step has the mark.
        self.assertEqual((marked.count("mark"), marked.index("mark")), (1, 1))

    def test_losses_are_the_same_as_without_counting(self):
        plain = harness.run("flops.py", stop_after=20, env={"WITHOUT": "1"})
        self.assertEqual(self.counted(plain), {None})
        self.assertEqual(harness.run("flops.py", stop_after=20).losses[:8], plain.losses[:8])

    def test_convolutions_and_attention_have_formulas(self):
        # A convolution of 3x3 windows over 4x4 pixels: forward, and the gradient of its weights, as the data has no gradient.
        # Then a linear layer from 12 to 8: forward and both gradients.
        convolution = 2 * (2 * 3 * 9 * 4) * 2 + 3 * 2 * 12 * 8
        result = harness.run("flops.py", stop_after=10, env={"KIND": "convolution"})
        self.assertEqual(self.counted(result), {16 * convolution})
        if any("for_cpu" in str(packet) for packet in flop_registry) or harness.KIND != "cpu":
            (attention,) = self.counted(harness.run("flops.py", stop_after=10, env={"KIND": "attention"}))
            without = 16 * (2 * 32 * 256 * 2 + 3 * 2 * 256 * 8)
            self.assertGreater(attention, without)

    def test_evaluation_and_the_workers_of_the_loader_do_not_count(self):
        result = harness.run("flops.py", stop_after=20, env={"EVALUATE": "1", "WORKERS": "1"})
        self.assertEqual(self.counted(result), {16 * LINEAR})

    def test_other_settings_of_a_live_process_are_counted_again(self):
        size = "dataloader.batch_size"
        result = harness.run("flops.py", {size: 16}, stop_after=12, segments=({size: 8},))
        self.assertEqual([result.errors, result.code], [[], 0], result.output)
        first, second = result.segments
        self.assertEqual({step.get("flops") for step in first.steps[2:]}, {16 * LINEAR})
        self.assertEqual({step.get("flops") for step in second.steps[1:]}, {8 * LINEAR})

    @harness.needs_kernels
    def test_compiled_code_is_not_counted(self):
        result = harness.run("flops.py", stop_after=10, env={"COMPILED": "1"})
        self.assertEqual(self.counted(result), {None})


if __name__ == "__main__":
    unittest.main()
