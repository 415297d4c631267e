"""Tests of the hook with libraries that wrap models, optimizers and loaders."""

import importlib.util
import unittest

import harness


@unittest.skipIf(importlib.util.find_spec("lightning") is None, "lightning is not installed")
class Fabric(unittest.TestCase):
    def test_a_wrapper_is_called_once_for_each_forward(self):
        result = harness.run("fabric.py", {"dataloader.batch_size": 8, "torch.precision": "bf16"})
        self.assertEqual((result.code, result.errors), (0, []), result.output)
        self.assertEqual({step["samples"] for step in result.steps}, {8})
        self.assertEqual(result.applied, {"dataloader.batch_size", "torch.precision"})
        self.assertIn("forward", result.phases)


if __name__ == "__main__":
    unittest.main()
