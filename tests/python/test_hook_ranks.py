"""Tests of the exchange between ranks: the targets `ddp.*` and `fsdp.*`, and training without exchange."""

import os
import sys
import unittest

import harness

try:
    import torch
except ImportError as missing:
    raise unittest.SkipTest("torch is not installed") from missing

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
LAUNCHER = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]


def run(apply=None, mode=None, **env):
    experiment = {"mode": mode, "set": {}} if mode else None
    return harness.run("ranks.py", apply, command=LAUNCHER, env=env, experiment=experiment, device="cpu")


@unittest.skipIf(VERSION < (2, 6), "torchrun of torch 1 does not run on this Python, and fully_shard came with 2.6")
class Ranks(unittest.TestCase):
    def test_what_ddp_is_made_with_is_set_and_a_hook_of_torch_gives_way(self):
        wanted = {
            "ddp.bucket_cap_mb": 3,
            "ddp.gradient_as_bucket_view": True,
            "ddp.static_graph": True,
            "ddp.compression": "bf16",
        }
        result = run(wanted, OWN_HOOK="fp16_compress_hook")
        self.assertEqual((result.code, result.errors), (0, []), result.output)
        self.assertEqual(result.applied, set(wanted))
        self.assertEqual({name: result.facts[name] for name in wanted}, wanted)
        self.assertEqual(result.facts["distributed.wrapper"], "DistributedDataParallel")
        self.assertEqual(result.facts["distributed.backend"], "gloo")

    def test_a_hook_of_the_scripts_own_is_not_replaced(self):
        result = run({"ddp.compression": "fp16"}, OWN_HOOK="own_hook")
        kinds = {kind for kind, _ in result.errors}
        self.assertEqual((kinds, result.applied), ({"rejected"}, set()), result.output)
        self.assertIn("a communication hook of its own (own_hook)", result.errors[0][1])

    def test_sharded_weights_are_kept_and_gathered_ahead_and_ddp_is_not_there(self):
        wanted = {"fsdp.reshard_after_forward": False, "fsdp.prefetch_depth": 2}
        result = run({**wanted, "ddp.bucket_cap_mb": 3, "ddp.compression": "fp16"}, WRAP="fully_shard")
        self.assertEqual((result.code, result.applied), (0, set(wanted)), result.output)
        self.assertEqual({name: result.facts[name] for name in wanted}, wanted)
        ((kind, message),) = result.errors
        self.assertEqual(kind, "not_applied")
        self.assertIn("no torch.nn.parallel.DistributedDataParallel trained", message)

    def test_sharded_ranks_train_without_exchange_and_the_optimizer_has_as_much_to_do(self):
        result = run(mode="no_communication", WRAP="fully_shard", CHECK="1")
        self.assertEqual((result.code, result.errors), (0, []), result.output)
        self.assertIs(result.facts["no_communication"], True)
        # The first step still gathers the weights and creates the gradients, so the script counts only steps 11 to 20.
        self.assertIn("exchanged 0 times in the last ten steps, gradients for 6 of 6", result.output)

    @unittest.skipUnless(os.environ.get("GPUTUNE_TEST_ALL"), "takes long")
    def test_ranks_that_exchange_nothing_by_torch_cannot_be_silenced(self):
        result = run(mode="no_communication", WRAP="none")
        self.assertEqual({kind for kind, _ in result.errors}, {"rejected"}, result.output)
        self.assertIn("the script trains with neither", result.errors[0][1])

    @unittest.skipUnless(os.environ.get("GPUTUNE_TEST_ALL"), "takes long")
    def test_the_older_wrapper_has_a_strategy(self):
        result = run({"fsdp.sharding_strategy": "SHARD_GRAD_OP"}, WRAP="fsdp1")
        self.assertEqual((result.code, result.errors), (0, []), result.output)
        self.assertEqual(result.applied, {"fsdp.sharding_strategy"})


if __name__ == "__main__":
    unittest.main()
