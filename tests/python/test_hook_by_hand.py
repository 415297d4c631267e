"""Tests of the hook with scripts that have no optimizer."""

import unittest

import harness

try:
    import torch  # noqa: F401
except ImportError as missing:
    raise unittest.SkipTest("torch is not installed") from missing


class WithoutAnOptimizer(unittest.TestCase):
    def test_steps_end_where_gradients_are_zeroed(self):
        result = harness.run("by_hand.py")
        self.assertEqual((result.code, result.errors), (0, []), result.output)
        self.assertGreater(len(result.steps), 16)
        self.assertLess(len(result.steps), 50_000)  # it was stopped
        self.assertEqual({step["samples"] for step in result.steps}, {2})
        self.assertTrue({"forward", "backward"} <= result.phases)
        self.assertGreaterEqual(len(result.losses), 16)

    def test_what_needs_an_optimizer_is_rejected(self):
        result = harness.run("by_hand.py", {"dataloader.batch_size": 8, "torch.grad_accumulation": 2})
        kind, message = result.errors[0]
        self.assertEqual(kind, "rejected")
        self.assertIn("the script has no optimizer", message)

    def test_a_script_in_which_no_step_can_be_found_says_what_to_do(self):
        result = harness.run("by_hand.py", env={"ZERO_BY_HAND": "1"})
        kind, message = result.errors[0]
        self.assertEqual(kind, "failed")
        self.assertIn("gputune.step()", message)


if __name__ == "__main__":
    unittest.main()
