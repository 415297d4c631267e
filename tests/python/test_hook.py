"""Tests of the hook's reports from real scripts, and of the code that it must not change."""

import math
import os
import sys
import tempfile
import unittest
from pathlib import Path

import harness

try:
    import torch
except ImportError as missing:
    raise unittest.SkipTest("torch is not installed") from missing

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
IS_CPU = harness.DEVICE == "cpu"
PHASES = {"data_wait", "forward", "backward", "optimizer"} | (set() if IS_CPU else {"host_to_device"})
BATCH = "dataloader.batch_size"
WORKERS = "dataloader.num_workers"


class Steps(unittest.TestCase):
    def test_a_plain_script_reports_steps_samples_losses_phases_and_marks_and_stops(self):
        result = harness.run("cnn.py")
        self.assertEqual(result.code, 0, result.output)
        self.assertEqual(result.errors, [])
        hello = result.events[0]
        self.assertEqual((hello["event"], hello["rank"]), ("hello", 0))
        self.assertIn("torch " + torch.__version__, hello["framework"])
        self.assertIn("pid", hello)
        self.assertLess(len(result.steps), 200 * 32)  # it was stopped
        self.assertTrue(all(step["samples"] == 8 for step in result.steps))
        self.assertTrue(all(math.isfinite(loss) for loss in result.losses))
        times = [step["time"] for step in result.steps]
        self.assertEqual(times, sorted(times))
        self.assertEqual(result.phases, PHASES | {"evaluation"})
        self.assertEqual(set(result.marks), {"epoch", "evaluation"})
        self.assertEqual([event["event"] for event in result.events[-2:]], ["done", "bye"])

    def test_phases_fit_into_the_time_of_their_step(self):
        result = harness.run("cnn.py")
        spent, last = 0.0, None
        for event in result.events:
            if event["event"] == "phase":
                spent += event["seconds"]
            elif event["event"] == "step":
                if last is not None:
                    self.assertLessEqual(spent, event["time"] - last)
                spent, last = 0.0, event["time"]

    def test_evaluation_is_a_phase_of_the_step_after_it_and_of_no_other(self):
        phases, marks = set(), set()
        for event in harness.run("cnn.py").events:
            if event["event"] == "step":
                self.assertEqual("evaluation" in phases, "evaluation" in marks)
                phases, marks = set(), set()
            elif event["event"] in ("phase", "mark"):
                (phases if event["event"] == "phase" else marks).add(event["name"])

    def test_the_same_seed_gives_the_same_losses(self):
        first, second = (harness.run("gan.py", stop_after=10).losses[:10] for _ in range(2))
        self.assertEqual(first, second)

    def test_two_optimizers_are_one_step(self):
        result = harness.run("gan.py", {BATCH: 16}, stop_after=None)
        self.assertEqual(len(result.steps), 20 * 256 // 16)
        self.assertEqual({step["samples"] for step in result.steps}, {16})

    def test_without_a_loader_the_input_of_the_model_counts(self):
        result = harness.run("no_loader.py")
        self.assertEqual({step["samples"] for step in result.steps}, {24})
        self.assertEqual(result.phases, PHASES - {"data_wait"})

    def test_a_closure_stays_where_it_was_given(self):
        result = harness.run("closure.py", stop_after=None)
        self.assertIn("trained", result.output)
        self.assertEqual((result.errors, len(result.steps)), ([], 30))
        self.assertGreaterEqual(len(result.losses), 30 if IS_CPU else 16)

    def test_a_checkpoint_is_marked(self):
        for fault in ("save", "whole"):
            result = harness.run("faulty.py", env={"FAULT": fault})
            self.assertEqual((result.code, result.marks), (0, ["checkpoint"]), result.output)
            self.assertIn("checkpoint", result.phases)

    def test_a_script_that_catches_everything_stops_all_the_same(self):
        result = harness.run("stubborn.py")
        self.assertEqual(result.code, 0)
        self.assertIn("caught", result.output)
        self.assertLess(len(result.steps), 120_000)  # of the 131,072 steps of the script

    def test_a_script_that_ends_by_itself_ends_as_ever(self):
        result = harness.run("transformer.py", stop_after=None) if VERSION >= (2, 0) else harness.run("gan.py", stop_after=None)
        self.assertEqual(result.code, 0)
        self.assertEqual(result.named("done"), [])


class Loaders(unittest.TestCase):
    def test_only_the_training_loader_is_changed(self):
        result = harness.run("cnn.py", {BATCH: 32, WORKERS: 1, "dataloader.persistent_workers": True})
        self.assertEqual(result.errors, [])
        self.assertEqual(result.applied, {BATCH, WORKERS, "dataloader.persistent_workers"})
        self.assertEqual({step["samples"] for step in result.steps}, {32})
        self.assertIn("evaluated [16] 8", result.output)

    def test_a_loader_that_turns_out_to_evaluate_gets_its_settings_back(self):
        result = harness.run("evaluate_first.py", {BATCH: 16, WORKERS: 1, "dataloader.prefetch_factor": 4})
        self.assertEqual(result.applied, {BATCH, WORKERS, "dataloader.prefetch_factor"})
        self.assertEqual({step["samples"] for step in result.steps}, {16})
        self.assertIn("evaluated [12] 0", result.output)

    def test_shuffled_loaders_that_evaluate_keep_what_they_have(self):
        apply = {BATCH: 16, WORKERS: 1, "dataloader.persistent_workers": True}
        both = ("after [12] 12 0 False 4", "after [24] None 0 False 2")
        for env, lines in (({}, both), ({"FIRST": "1"}, both), ({"LATE": "1"}, both[:1])):
            with self.subTest(env):
                result = harness.run("evaluate_shuffled.py", apply, env=env)
                self.assertEqual((result.code, result.errors), (0, []), result.output)
                self.assertEqual(result.applied, set(apply))
                self.assertEqual({step["samples"] for step in result.steps}, {16})
                self.assertEqual({line for line in result.output.splitlines() if "after" in line}, set(lines))

    def test_a_script_that_finds_a_loader_for_evaluation_empty_is_measured(self):
        for env in ({}, {"SHUFFLE": "1"}, {"COUNT": "0"}):
            with self.subTest(env):
                result = harness.run("empty_loader.py", {WORKERS: 0}, env=env, stop_after=None)
                self.assertEqual((result.code, result.errors, result.applied), (0, [], {WORKERS}), result.output)
                self.assertEqual([step["samples"] for step in result.steps], [8] * 240)

    def test_a_loader_that_trains_without_a_batch_rejects_the_config(self):
        few = "the dataset has 5 samples, fewer than a batch of 12, and drop_last leaves them out"
        none = "the dataset has 0 samples, fewer than a batch of 12"
        for env, message in (
            ({"SHUFFLE": "1", "EPOCHS": "1", "KILLED": "1"}, few),  # at once
            ({"EPOCHS": "1"}, few),  # at the end
            ({"EPOCHS": "1", "COUNT": "0"}, none),
            ({"EPOCHS": "20", "KILLED": "1"}, few),  # after many epochs
            ({"EPOCHS": "1", "KILLED": "1"}, None),
        ):
            with self.subTest(env):
                result = harness.run("empty_loader.py", env={"ALONE": "1", **env}, stop_after=None)
                expected = {("rejected", message)} if message is not None else set()
                self.assertEqual((result.code, set(result.errors)), (0, expected), result.output)

    def test_a_loader_that_is_made_anew_for_each_epoch_is_the_training_loader(self):
        for kind in ("iterable", "ordered", "shuffled", "shards"):
            with self.subTest(kind):
                result = harness.run("new_loader_each_epoch.py", {BATCH: 16}, env={"KIND": kind}, stop_after=None)
                self.assertEqual((result.code, result.errors), (0, []), result.output)
                self.assertEqual([step["samples"] for step in result.steps], [16] * 16)
                self.assertEqual(result.marks, ["evaluation", "epoch"] * 3)
                self.assertEqual(result.output.count("evaluated [10]"), 4)

    def test_iterable_datasets_and_subclasses_of_the_loader(self):
        result = harness.run("iterable.py", {BATCH: 16, WORKERS: 1})
        self.assertEqual(result.errors, [])
        self.assertEqual({step["samples"] for step in result.steps}, {16})

    def test_a_batch_sampler_in_the_place_of_the_sampler(self):
        result = harness.run("batch_norm.py", {BATCH: 16})
        self.assertEqual(result.applied, {BATCH})
        self.assertEqual({step["samples"] for step in result.steps}, {16})

    def test_a_subclass_that_does_without_the_methods_of_torch(self):
        result = harness.run("own_loader.py", {BATCH: 16, WORKERS: 1}, stop_after=None)
        self.assertEqual((result.code, result.errors, result.applied), (0, [], {BATCH, WORKERS}), result.output)
        self.assertEqual([step["samples"] for step in result.steps], [16] * 64)
        self.assertIn("batches 16", result.output)
        self.assertIn("data_wait", result.phases)

    def test_no_workers_mean_no_prefetching_and_no_persistence(self):
        apply = {WORKERS: 0, "dataloader.prefetch_factor": 4, "dataloader.persistent_workers": True}
        result = harness.run("workers.py", apply, env={"START": "fork"})
        self.assertEqual((result.code, result.errors, result.applied), (0, [], set(apply)), result.output)
        self.assertIn("workers 0", result.output)

    def test_prefetching_for_a_script_without_workers_is_an_error(self):
        result = harness.run("cnn.py", {"dataloader.prefetch_factor": 4})
        ((kind, message),) = result.errors
        self.assertEqual(kind, "not_applied")
        self.assertIn("prefetch_factor (dataloader.prefetch_factor) found nothing to act on", message)
        self.assertIn("num_workers=0", message)

    def test_no_loader_is_an_error_that_names_the_target(self):
        result = harness.run("no_loader.py", {BATCH: 16})
        ((kind, message),) = result.errors
        self.assertEqual(kind, "not_applied")
        self.assertIn("batch_size (dataloader.batch_size) found nothing to act on", message)

    def test_spawned_workers_of_a_pool_report_nothing(self):
        result = harness.run("pool.py", stop_after=None)
        self.assertIn("in a probe [False] True", result.output)
        self.assertEqual([step["samples"] for step in result.steps], [1])

    def test_workers_of_all_start_methods_report_nothing(self):
        for start in ("fork", "spawn", "forkserver"):
            with self.subTest(start):
                result = harness.run("workers.py", {WORKERS: 1}, env={"START": start}, stop_after=None)
                self.assertEqual((result.code, result.errors), (0, []), result.output)
                self.assertIn("workers 1 3 False\ntrained", result.output)
                self.assertEqual(len(result.named("hello")), 1)
                self.assertEqual(len(result.steps), 128)


class Processes(unittest.TestCase):
    def launcher(self):
        if VERSION < (2, 0) and sys.version_info >= (3, 11):
            self.skipTest("torchrun of torch 1 does not run on this Python")
        return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]

    def test_ranks_of_torchrun_stop_together(self):
        result = harness.run("distributed.py", {BATCH: 16}, command=self.launcher())
        self.assertEqual((result.code, result.errors), (0, []), result.output)
        self.assertEqual({(event["rank"], event["ranks"]) for event in result.named("hello")}, {(0, 2), (1, 2)})
        self.assertEqual({step["samples"] for step in result.steps}, {32})
        self.assertEqual({event["from_rank"] for event in result.named("applied")}, {0})

    def test_the_error_of_a_rank_names_it(self):
        result = harness.run("distributed.py", command=self.launcher(), env={"FAIL": "1"}, stop_after=None)
        self.assertNotEqual(result.code, 0)
        self.assertEqual(result.errors[0], ("failed", "rank 1: ValueError: rank is out of order"))

    def test_ranks_that_the_script_spawns(self):
        with tempfile.TemporaryDirectory() as folder:
            result = harness.run("distributed.py", {BATCH: 16}, env={"SPAWN": os.path.join(folder, "store")})
        self.assertEqual((result.code, result.errors), (0, []), result.output)
        self.assertEqual({step["samples"] for step in result.steps}, {32})

    def test_children_of_other_kinds_report_nothing(self):
        for fault in ("child", "subprocess"):
            result = harness.run("faulty.py", env={"FAULT": fault})
            self.assertEqual((result.code, result.errors), (0, []), result.output)
            self.assertEqual(len(result.named("hello")), 1)

    def test_a_script_that_the_training_starts_reports_nothing(self):
        result = harness.run("faulty.py", env={"FAULT": "helper"})
        self.assertEqual((result.code, result.errors), (0, []), result.output)
        self.assertIn("helper 1", result.output)
        self.assertEqual(len(result.named("hello")), 1)


class Errors(unittest.TestCase):
    def error(self, fault):
        result = harness.run("faulty.py", env={"FAULT": fault}, stop_after=None)
        self.assertEqual(result.code, 1, result.output)
        ((kind, message),) = result.errors
        self.assertIn(message.split(":")[0], result.output)
        return kind, message

    def test_an_exception(self):
        self.assertEqual(self.error("error"), ("failed", "ValueError: five is enough"))

    def test_a_module_that_is_missing(self):
        self.assertEqual(self.error("import")[0], "failed")

    def test_memory_of_the_device(self):
        for fault in ("memory", "nvml"):
            with self.subTest(fault):
                self.assertEqual(self.error(fault)[0], "out_of_memory")

    def test_memory_of_the_host(self):
        self.assertEqual(self.error("host")[0], "out_of_memory")

    def test_an_exit_code_is_no_error_event(self):
        result = harness.run("faulty.py", env={"FAULT": "exit"}, stop_after=None)
        self.assertEqual((result.code, result.errors), (3, []))

    @unittest.skipUnless(IS_CPU, "of a device the loss of step 20 is read at a window edge only")
    def test_a_loss_that_is_not_a_number(self):
        result = harness.run("faulty.py", env={"FAULT": "nan"})
        self.assertTrue(any(math.isnan(loss) for loss in result.losses))


class Entry(unittest.TestCase):
    def test_without_a_probe_torch_is_as_ever(self):
        result = harness.run("imports.py", has_probe=False)
        self.assertIn("backward True", result.output)
        self.assertIn("finders []", result.output)
        self.assertEqual(result.events, [])

    def test_a_probe_that_is_gone_is_no_error(self):
        result = harness.run("cnn.py", env={"EPOCHS": "1"}, stop_after=None, is_gone=True)
        self.assertEqual((result.code, result.events), (0, []), result.output)

    def test_without_entry_points_the_import_hook_does_it(self):
        result = harness.run("imports.py", env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
        self.assertIn("loader SourceFileLoader", result.output)
        self.assertIn("backward False", result.output)
        self.assertIn("finders ['_Finder']", result.output, "it still awaits Keras")
        self.assertIn("reload True", result.output)

    def test_the_users_sitecustomize_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "sitecustomize.py").write_text("OWN = 'the own one'\nimport sys\nsys.path.append('/own')\n")
            result = harness.run("imports.py", path=(folder,))
        self.assertIn("sitecustomize the own one", result.output)
        self.assertIn("backward False", result.output)

    def test_an_error_in_the_users_sitecustomize_looks_as_ever(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "sitecustomize.py").write_text("raise ValueError('own mistake')\n")
            result = harness.run("imports.py", path=(folder,))
        self.assertIn("Error in sitecustomize; set PYTHONVERBOSE for traceback:\nValueError: own mistake", result.output)
        self.assertIn("backward False", result.output)

    def test_warnings_as_errors(self):
        result = harness.run("cnn.py", {BATCH: 16}, python=("-W", "error"))
        self.assertEqual((result.code, result.errors), (0, []), result.output)
        self.assertNotIn("Warning", result.output)

    @unittest.skipIf(harness.DEVICE == harness.STAND_IN, "the stand-in comes by PYTHONPATH")
    def test_an_isolated_interpreter_is_left_alone(self):
        result = harness.run("cnn.py", python=("-I",), env={"EPOCHS": "1"}, stop_after=None)
        self.assertEqual((result.code, result.events), (0, []), result.output)


if __name__ == "__main__":
    unittest.main()
