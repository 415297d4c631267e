"""Tests of each target on a real script, and of its message if it finds nothing to act on."""

import collections
import math
import os
import re
import subprocess
import sys
import unittest

import harness

try:
    import torch
except ImportError as missing:
    raise unittest.SkipTest("torch is not installed") from missing

sys.path.insert(0, str(harness.PYTHON))

import gputune._hook.install  # noqa: E402, F401
from gputune._hook import precision  # noqa: E402
from gputune._hook.batches import tensors_in  # noqa: E402

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
PRECISION = "torch.precision"
needs_attention = unittest.skipIf(VERSION < (2, 0), "torch 2.0 brought scaled_dot_product_attention and compile")
needs_cpu_scaler = unittest.skipIf(VERSION < (2, 3), "torch 2.3 brought float16 and GradScaler to the CPU")
needs_fused = unittest.skipIf(VERSION < (2, 4), "fused optimizers on the CPU came with torch 2.4")
#: The fused attention that accepts fp32: torch calls it flash on the CPU, and memory-efficient on CUDA.
TAKES_FLOATS = "flash" if harness.DEVICE == "cpu" else "memory-efficient"
is_older = unittest.skipUnless(VERSION < (2, 0), "for torch 1")


def number(result, name):
    return float(re.search(rf"{name} \[?(\S+?)\]?\s", result.output).group(1))


class Target(unittest.TestCase):
    def run_applied(self, script, apply, **options):
        result = harness.run(script, apply, stop_after=None, **options)
        self.assertEqual((result.code, result.errors), (0, []), result.output)
        self.assertEqual(result.applied, set(apply))
        return result

    def run_failing(self, script, target, value, kind, **options):
        result = harness.run(script, {target: value}, **options)
        ((found, message), *_) = result.errors
        self.assertEqual(found, kind)
        self.assertIn(target, message)
        self.assertEqual(result.applied, set())
        return message


class Precision(Target):
    def test_regions_of_the_script_get_the_dtype(self):
        for value, dtype in (("fp32", "float32"), ("bf16", "bfloat16")):
            with self.subTest(value):
                result = self.run_applied("amp.py", {PRECISION: value})
                self.assertIn(f"hidden ['torch.{dtype}']", result.output)

    def test_a_region_that_is_off_is_switched_on(self):
        result = self.run_applied("amp.py", {PRECISION: "bf16"}, env={"REGION": "0"})
        self.assertIn("hidden ['torch.bfloat16']", result.output)

    def test_a_script_without_regions(self):
        full, half = (harness.run("cnn.py", {PRECISION: value}) for value in ("fp32", "bf16"))
        self.assertEqual((full.applied, half.applied), ({PRECISION}, {PRECISION}))
        self.assertNotEqual(full.losses[:16], half.losses[:16])
        for one, other in zip(full.losses[:16], half.losses):
            self.assertAlmostEqual(one, other, delta=0.01)

    @needs_cpu_scaler
    def test_the_scaler_of_the_script_is_on_for_fp16_only(self):
        for value, is_on in (("fp16", True), ("bf16", False), ("fp32", False)):
            with self.subTest(value):
                result = self.run_applied("amp.py", {PRECISION: value}, env={"SCALER": "1", "CLIP": "1"})
                self.assertIn(f"scaler {is_on}", result.output)

    @needs_cpu_scaler
    def test_our_scaler_does_what_the_scripts_would(self):
        own = self.run_applied("amp.py", {PRECISION: "fp16"}, env={"SCALER": "1", "CLIP": "1"})
        ours = self.run_applied("amp.py", {PRECISION: "fp16"}, env={"CLIP": "1"})
        self.assertIn("hidden ['torch.float16']", ours.output)
        self.assertEqual(number(own, "weights"), number(ours, "weights"))

    @needs_fused
    def test_our_scaler_drops_steps_that_overflow_of_fused_optimizers_too(self):
        for fused in ("0", "1"):
            with self.subTest(fused=fused):
                env = {"FUSED": fused, "OVERFLOW": "1"}
                own = self.run_applied("amp.py", {PRECISION: "fp16"}, env={"SCALER": "1", **env})
                ours = self.run_applied("amp.py", {PRECISION: "fp16"}, env=env)
                self.assertTrue(math.isfinite(number(own, "weights")))
                self.assertEqual(number(own, "weights"), number(ours, "weights"))

    @unittest.skipIf(VERSION < (2, 6), "torch 2.6 brought get_total_norm")
    def test_gradients_are_scaled_back_before_their_norm_is_taken(self):
        clipped = self.run_applied("amp.py", {PRECISION: "fp16"}, env={"SCALER": "1", "CLIP": "1"})
        by_norm = self.run_applied("amp.py", {PRECISION: "fp16"}, env={"CLIP": "total"})
        self.assertEqual(number(clipped, "weights"), number(by_norm, "weights"))

    @harness.on_the_cpu
    @needs_cpu_scaler
    def test_parts_that_fsdp_shards_have_its_scaler_and_its_clipping(self):
        own = self.run_applied("amp.py", {PRECISION: "fp16"}, env={"FSDP": "1", "SCALER": "1", "CLIP": "sharded"})
        ours = self.run_applied("amp.py", {PRECISION: "fp16"}, env={"FSDP": "1", "CLIP": "sharded"})
        self.assertEqual(number(own, "weights"), number(ours, "weights"))
        self.assertIn("sharded scalers 1\n", ours.output)

    @needs_cpu_scaler
    def test_a_scaler_that_scales_in_its_own_way_is_the_scripts_scaler(self):
        own = self.run_applied("amp.py", {PRECISION: "fp16"}, env={"SCALER": "1"})
        sharded = self.run_applied("amp.py", {PRECISION: "fp16"}, env={"SCALER": "sharded"})
        self.assertEqual(number(own, "weights"), number(sharded, "weights"))
        self.assertEqual(own.losses[:16], sharded.losses[:16])

    def test_logits_are_widened_where_the_script_computes_the_loss(self):
        logits, other, loss = torch.ones(2, 3).bfloat16(), torch.ones(2, 3).half(), torch.ones((), requires_grad=True)
        short = loss.bfloat16()
        named = collections.namedtuple("Named", "loss logits")
        for outputs, is_widened in (
            (logits, True),
            ((logits, None), True),
            ((short, logits), False),
            ((logits, short), False),  # nanoGPT's order
            ({"loss": short, "logits": logits}, False),
            ({"loss": short, "aux_loss": short, "logits": logits}, False),
            ({"aux_loss": short, "logits": logits}, True),
            ({"loss": None, "logits": logits, "others": [other]}, True),
            (named(short, logits), False),
            (named(None, logits), True),
        ):
            with self.subTest(outputs):
                found = {tensor.dtype for tensor in tensors_in(precision._widen_all(outputs)) if tensor.dim() > 0}
                self.assertEqual(found, {torch.float32 if is_widened else torch.bfloat16})
                of_losses = {tensor.dtype for tensor in tensors_in(precision._widen_all(outputs)) if tensor.dim() == 0}
                self.assertLessEqual(of_losses, {torch.float32})

    @harness.on_the_cpu
    def test_tf32_without_a_gpu_is_rejected(self):
        self.assertIn("NVIDIA", self.run_failing("cnn.py", PRECISION, "tf32", "rejected"))

    @unittest.skipIf(VERSION < (2, 9), "torch 2.9 added the switches fp32_precision")
    def test_tf32_is_set_from_every_state_that_a_script_may_leave(self):
        for state in (
            "pass",
            "b.fp32_precision = 'tf32'",
            "b.fp32_precision = 'ieee'",
            "b.cuda.matmul.fp32_precision = 'tf32'",
            "b.cudnn.fp32_precision = 'ieee'",
            "b.cudnn.conv.fp32_precision = 'ieee'",
            "torch.set_float32_matmul_precision('medium')",
        ):
            code = (
                f"import torch; b = torch.backends; {state}\n"
                "import gputune._hook.install\nfrom gputune._hook.precision import set_tf32\n"
                "for is_on in (True, False, True, False):\n"
                "    set_tf32(is_on)\n"
                "    new = {s.fp32_precision for s in (b.cuda.matmul, b.cudnn.conv, b.cudnn.rnn)}\n"
                "    print(is_on, *new, b.cuda.matmul.allow_tf32, b.cudnn.allow_tf32)\n"
            )
            environment = {**os.environ, "PYTHONPATH": str(harness.PYTHON)}
            with self.subTest(state):
                done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
                self.assertEqual(done.stdout, "True tf32 True True\nFalse ieee False False\n" * 2, done.stderr)

    @is_older
    def test_fp16_on_a_cpu_that_cannot_is_rejected(self):
        self.run_failing("cnn.py", PRECISION, "fp16", "rejected")


@harness.needs_kernels
class Compile(Target):
    @needs_attention
    def test_the_model_is_compiled_in_place(self):
        result = self.run_applied("transformer.py", {"torch.compile": "default"})
        self.assertIn("compiled Net", result.output)
        self.assertGreater(number(result, "frames"), 0)

    @needs_attention
    def test_the_compilation_of_the_script_is_switched_off(self):
        result = self.run_applied("transformer.py", {"torch.compile": "off"}, env={"COMPILE": "1"})
        self.assertIn("compiled Net", result.output)
        self.assertEqual(number(result, "frames"), 0)

    @needs_attention
    def test_the_compilation_of_the_script_gets_the_mode(self):
        result = self.run_applied("transformer.py", {"torch.compile": "reduce-overhead"}, env={"COMPILE": "1"})
        self.assertIn("compiled OptimizedModule", result.output)

    @needs_attention
    def test_modes_for_another_backend_are_rejected(self):
        message = self.run_failing(
            "transformer.py", "torch.compile", "default", "rejected", env={"COMPILE": "1", "BACKEND": "eager"}
        )
        self.assertIn("backend eager", message)

    @is_older
    def test_torch_1_cannot_compile(self):
        self.run_failing("cnn.py", "torch.compile", "default", "rejected")


    @needs_attention
    def test_the_argument_for_sizes_reaches_each_compilation(self):
        for env in ({}, {"COMPILE": "1"}):
            settings = {"torch.compile": "default", "torch.compile_dynamic": "always"}
            seen = {"SEEN": "1", **env}
            result = self.run_applied("transformer.py", settings, env=seen)
            self.assertIn("dynamic True", result.output)
        settings = {"torch.compile": "off", "torch.compile_dynamic": "always"}
        self.assertEqual(number(self.run_applied("transformer.py", settings), "frames"), 0)

    @needs_attention
    def test_nothing_is_compiled_and_the_argument_for_sizes_has_nothing_to_act_on(self):
        message = self.run_failing("transformer.py", "torch.compile_dynamic", "never", "not_applied")
        self.assertIn("the target torch.compile compiles the model", message)


class Workers(Target):
    METHOD, ORDER, COUNT = "dataloader.multiprocessing_context", "dataloader.in_order", "dataloader.num_workers"

    def test_workers_start_by_the_method(self):
        for method, forked in (("spawn", 0), ("fork", 1)):
            result = self.run_applied("worker_start.py", {self.METHOD: method})
            self.assertIn(f"forked {{{forked}}} alternating True", result.output)

    def test_batches_come_as_workers_have_them(self):
        if not hasattr(torch.utils.data.DataLoader([0]), "in_order"):
            self.run_failing("worker_start.py", self.ORDER, False, "not_applied")
            return
        for in_order in (True, False):
            result = self.run_applied("worker_start.py", {self.ORDER: in_order})
            self.assertIn(f"alternating {in_order}", result.output)

    def test_a_script_without_workers_has_none_to_start(self):
        for target, value in ((self.METHOD, "spawn"), (self.ORDER, False)):
            message = self.run_failing("worker_start.py", target, value, "not_applied", env={"WORKERS": "0"})
            self.assertIn("num_workers=0", message)
        # If the config itself sets zero workers, these settings count as applied.
        result = self.run_applied("worker_start.py", {self.METHOD: "spawn", self.ORDER: False, self.COUNT: 0})
        self.assertIn("forked {1}", result.output)


class Backends(Target):
    def test_channels_last(self):
        for value in (True, False):
            result = harness.run("cnn.py", {"torch.channels_last": value}, stop_after=5)
            self.assertEqual((result.errors, result.applied), ([], {"torch.channels_last"}))

    def test_channels_last_needs_images(self):
        self.assertIn("four-dimensional", self.run_failing("gan.py", "torch.channels_last", True, "not_applied"))

    @harness.on_the_cpu
    def test_cudnn_needs_a_gpu(self):
        self.run_failing("cnn.py", "torch.cudnn_benchmark", True, "not_applied")

    @harness.needs_kernels
    @needs_attention
    def test_attention(self):
        for value in ("math", TAKES_FLOATS, "any"):
            self.run_applied("transformer.py", {"torch.sdpa": value})

    @harness.needs_kernels
    @needs_attention
    def test_kernels_that_do_not_take_the_inputs_are_rejected(self):
        if VERSION < (2, 5):
            self.skipTest("attention on the CPU does not look at the switches")
        for value in {"flash", "memory-efficient", "cudnn"} - {TAKES_FLOATS}:
            self.run_failing("transformer.py", "torch.sdpa", value, "rejected")

    @needs_attention
    def test_the_words_of_cuda_for_kernels_that_do_not_take_the_inputs_are_a_rejection(self):
        env = {"ATTENTION_FAILS": "Invalid backend"}
        self.run_failing("transformer.py", "torch.sdpa", "math", "rejected", env=env)
        # Without the setting the same message is an error of the script.
        result = harness.run("transformer.py", env=env)
        self.assertEqual(result.errors, [("failed", "RuntimeError: Invalid backend")], result.output)

    def test_no_attention(self):
        self.run_failing("cnn.py", "torch.sdpa", "math", "not_applied")


class Optimizer(Target):
    @needs_fused
    def test_fused(self):
        for value in (True, False):
            self.run_applied("transformer.py", {"torch.fused_optimizer": value})

    def test_an_optimizer_without_a_fused_form(self):
        self.run_failing("no_loader.py", "torch.fused_optimizer", True, "not_applied")

    @is_older
    def test_fused_on_a_cpu_that_cannot_is_rejected(self):
        self.run_failing("gan.py", "torch.fused_optimizer", True, "rejected")


class Memory(Target):
    @needs_attention
    def test_accumulation_changes_neither_losses_nor_weights(self):
        options = {"env": {"OPTIMIZER": "SGD"}}
        whole = self.run_applied("transformer.py", {"torch.grad_accumulation": 1}, **options)
        parts = self.run_applied("transformer.py", {"torch.grad_accumulation": 4}, **options)
        self.assertEqual(len(whole.losses), len(parts.losses))
        for one, other in zip(whole.losses, parts.losses):
            self.assertAlmostEqual(one, other, places=5)
        self.assertAlmostEqual(number(whole, "weights"), number(parts, "weights"), places=4)
        self.assertEqual(number(whole, "rate"), number(parts, "rate"))
        self.assertEqual({step["samples"] for step in parts.steps}, {8})

    def test_accumulation_of_statistics_is_rejected(self):
        result = harness.run("batch_norm.py", {"torch.grad_accumulation": 2})
        self.assertEqual(result.errors[0][0], "rejected")
        self.assertIn("batch normalisation", result.errors[0][1])

    def test_accumulation_of_sizes_that_cannot_be_divided_is_rejected(self):
        result = harness.run("gan.py", {"torch.grad_accumulation": 3})
        self.assertEqual(result.errors[0][0], "rejected")
        self.assertIn("cannot be divided", result.errors[0][1])

    def test_accumulation_with_two_optimizers_is_rejected(self):
        result = harness.run("gan.py", {"torch.grad_accumulation": 2})
        self.assertEqual(result.errors[0][0], "rejected")
        self.assertIn("more than one optimizer", result.errors[0][1])

    @needs_attention
    def test_recomputed_blocks_change_nothing(self):
        kept = self.run_applied("transformer.py", {"torch.checkpoint": False})
        recomputed = self.run_applied("transformer.py", {"torch.checkpoint": True})
        self.assertEqual(kept.losses, recomputed.losses)

    def test_a_model_without_blocks(self):
        self.run_failing("cnn.py", "torch.checkpoint", True, "not_applied")


def load_tests(_loader, tests, _pattern):
    return harness.wanted(tests)


if __name__ == "__main__":
    unittest.main()
