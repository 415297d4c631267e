"""Tests of experiments, which a probe runs in addition to training or instead of it, and of the facts that they report."""

import os
import sys
import tempfile
import unittest

import harness

try:
    import torch
except ImportError as missing:
    raise unittest.SkipTest("torch is not installed") from missing

sys.path.insert(0, str(harness.PYTHON))

from gputune._hook import run_length  # noqa: E402

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
#: The facts that a plain probe reports of a script with a DataLoader.
FREE = {
    "import_seconds",
    "device",
    "precision",
    "parameters",
    "parameters_4d",
    "batch_norm.needs_two_samples",
    "loader.samples",
    "loader.drop_last",
    "threads",
    "compiled",
    "optimizer",
    "optimizer_fused",
    "accumulation",
    "samples.counted_by",
    "main_cpu_share",
    "step_compute_seconds",
    "loader.workers",
    "loader.batch_size",
    "loader.pin_memory",
    "loader.persistent_workers",
    "loader.dataset",
    "loader.batches",
    "loader.batch_bytes",
    "loader.batch_pinned",
    "loader.first_batch_seconds",
}
if harness.KIND == "cuda":
    FREE |= {"tf32.convolutions", "memory.allocated", "memory.active", "memory.reserved", "memory.inactive_split"}
    FREE.add("memory.fragmentation")
#: The facts that the experiment `observe` adds for evidence.py.
SEEN = {
    "loader.item_seconds",
    "loader.item_cpu_seconds",
    "loader.item_seconds_p95",
    "loader.collate_seconds",
    "loader.collate_cpu_seconds",
    "syncs_per_step",
    "sync_seconds_per_step",
    "sync_sites",
    "logs_per_step",
    "log_seconds_per_step",
    "log_sites",
    "lines.main",
    "lines.cost_share",
    "files.kind",
    "files.opened_per_sample",
    "files.mean_bytes",
    "files.path",
    "files.read_bytes_per_second",
    "files.cached_share",
}


def run(mode, script="evidence.py", stop_after=100, apply=None, command=None, more=None, options=(), **env):
    """Runs a script in an experiment. DATA is a temporary folder for the script's files."""
    with tempfile.TemporaryDirectory() as data:
        experiment = {"mode": mode, "batches": 4, "workers": [0, 1, 2], "seconds": 0.4, "set": {}, **(more or {})}
        result = harness.run(
            script,
            apply,
            stop_after=stop_after,
            env={"DATA": data, **env},
            command=command,
            experiment=experiment,
            options=options,
        )
        result.folder = data
        return result


class Observing(unittest.TestCase):
    def test_a_plain_probe_says_what_costs_nothing(self):
        if VERSION < (2, 4):
            self.assertEqual(set(harness.run("cnn.py").facts), FREE)
            return
        facts = harness.run("transformer.py", {"torch.fused_optimizer": True}).facts
        self.assertEqual((set(facts), facts["flash_attention"]), (FREE | {"flash_attention"}, "yes"))
        self.assertEqual((facts["device"], facts["precision"], facts["parameters"]), (harness.KIND, "fp32", 3281))
        self.assertEqual((facts["optimizer"], facts["compiled"], facts["optimizer_fused"]), ("AdamW", False, True))
        self.assertEqual((facts["loader.workers"], facts["loader.batch_size"], facts["loader.batches"]), (0, 8, 8))
        self.assertEqual((facts["loader.dataset"], facts["loader.batch_bytes"]), ("TensorDataset", 8 * (6 * 16 + 1) * 4))

    def test_half_precision_is_seen(self):
        facts = harness.run("cnn.py", {"torch.precision": "bf16"}).facts
        self.assertEqual(facts["precision"], "bf16")

    def test_all_that_a_script_does_is_seen(self):
        result = run("observe")
        facts = result.facts
        self.assertEqual((result.code, result.errors), (0, []), result.output)
        self.assertEqual(set(facts), FREE | SEEN)
        self.assertGreaterEqual(facts["loader.item_seconds"], 0.001)
        self.assertGreaterEqual(facts["loader.item_seconds_p95"], 0.0009)
        self.assertLess(facts["loader.item_cpu_seconds"], facts["loader.item_seconds"])
        self.assertEqual((facts["files.kind"], facts["files.mean_bytes"]), ("images", 2000))
        self.assertEqual((facts["files.opened_per_sample"], facts["files.path"]), (1, result.folder))
        self.assertTrue(0 <= facts["files.cached_share"] <= 1)
        # In each step evidence.py reads one tensor, and writes three lines: by `print`, into a file and by `logging`.
        self.assertAlmostEqual(facts["syncs_per_step"], 1, delta=0.1)
        self.assertAlmostEqual(facts["logs_per_step"], 3, delta=0.2)
        self.assertRegex(facts["sync_sites"], r"^evidence\.py:\d+ item$")
        for name in ("fsync", "print", "write", "logging"):
            self.assertRegex(facts["log_sites"], rf"evidence\.py:\d+ {name}")
        self.assertGreater(facts["log_seconds_per_step"], 0)

    def test_workers_tell_of_their_samples_however_they_were_started(self):
        for start in ("fork", "spawn"):
            with self.subTest(start):
                result = run("observe", WORKERS="2", KIND="npy", SLOW_WORKER="1", START=start, KEEP="1")
                facts = result.facts
                self.assertEqual((result.code, result.errors), (0, []), result.output)
                self.assertEqual((facts["loader.workers"], facts["loader.prefetch_factor"]), (2, 2))
                self.assertGreaterEqual(facts["loader.item_seconds"], 0.001)
                self.assertGreater(facts["loader.worker_imbalance"], 1.05)
                for name in ("loader.workers_running", "loader.workers_on_storage"):
                    self.assertTrue(0 <= facts[name] <= 1, facts)
                self.assertEqual(facts["files.kind"], "npy")
                self.assertAlmostEqual(facts["files.opened_per_sample"], 0, delta=0.1)
                self.assertEqual(facts["files.path"], result.folder)

    def test_iterable_data_and_scripts_without_a_loader_have_what_there_is(self):
        facts = run("observe", "iterable.py").facts
        self.assertGreater(facts["loader.item_seconds"], 0)
        self.assertEqual((facts["files.kind"], "loader.batches" in facts), ("none", False))
        facts = run("observe", "no_loader.py").facts
        self.assertEqual([name for name in facts if name.startswith("loader.")], [])
        self.assertEqual((facts["optimizer"], facts["syncs_per_step"]), ("RMSprop", 0))

    def test_ranks_tell_what_they_spend_on_each_other(self):
        if VERSION < (2, 0):
            self.skipTest("torchrun of torch 1 does not run on this Python")
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
        result = run("observe", "distributed.py", stop_after=200, command=launcher, BARRIER="1")
        self.assertEqual((result.code, result.errors), (0, []), result.output)
        self.assertIn("communication", result.phases)
        for name in ("step_compute_seconds", "rank1.step_compute_seconds"):
            self.assertGreater(result.facts[name], 0)
        self.assertNotIn("rank1.device", result.facts)


class Replaying(unittest.TestCase):
    def test_batches_come_again_as_they_were_and_no_worker_is_left(self):
        result = run("replay", WORKERS="2", KEEP="1", INPLACE="1", EPOCHS="6", stop_after=None)
        self.assertEqual((result.code, result.errors), (0, []), result.output)
        self.assertIn("trained 6 8", result.output)
        self.assertIn("children 0", result.output)
        self.assertEqual((len(result.steps), result.facts["replay.batches"]), (48, 4))
        self.assertEqual({step["samples"] for step in result.steps}, {8})

    def test_containers_come_anew_and_large_ones_without_tensors_cost_little(self):
        sys.path.insert(0, str(harness.PYTHON))
        import torch
        from gputune._hook.replaying import renewed

        batch = {"x": torch.ones(2), "names": ["a", "b"], "points": [[1.0] * 10 for _ in range(1000)], "pair": (torch.zeros(1), ["c"])}
        give = renewed(batch)
        first = give()
        first["names"].clear()
        first["points"].clear()
        first["pair"][1].clear()
        del first["x"]
        again = give()
        self.assertEqual((again["names"], len(again["points"]), again["pair"][1]), (["a", "b"], 1000, ["c"]))
        self.assertIs(again["x"], batch["x"])
        self.assertIs(again["points"][0], batch["points"][0], "what holds no tensors is not walked through")

    def test_all_epochs_are_replayed_whatever_the_loader_takes_its_batches_from(self):
        for sampler in ("", "sized"):
            with self.subTest(sampler):
                result = run("replay", "epochs.py", stop_after=40, SAMPLER=sampler, LENGTH="64")
                self.assertEqual((result.code, result.errors), (0, []), result.output)
                epochs = [line.split()[1:] for line in result.output.splitlines() if line.startswith("epoch ")]
                self.assertGreaterEqual(len(epochs), 4, result.output)
                self.assertEqual(len({batch for epoch in epochs for batch in epoch}), 4, result.output)

    def test_settings_beside_the_space_take_effect(self):
        result = run("replay", "cnn.py", more={"set": {"dataloader.batch_size": 32, "env.OMP_NUM_THREADS": 1}})
        self.assertEqual((result.errors, result.applied), ([], {"dataloader.batch_size"}))
        self.assertEqual({step["samples"] for step in result.steps}, {32})

    def test_data_without_an_end_and_loaders_of_each_epoch_are_replayed(self):
        for script in ("iterable.py", "new_loader_each_epoch.py"):
            with self.subTest(script):
                result = run("replay", script, stop_after=60, KIND="own")
                self.assertEqual((result.code, result.errors), (0, []), result.output)
                self.assertEqual(result.facts["replay.batches"], 4)
                self.assertGreaterEqual(len(result.steps), 32)


class LoaderOnly(unittest.TestCase):
    def test_each_number_of_workers_has_a_rate_and_nothing_trains(self):
        result = run("loader_only", apply={"dataloader.num_workers": 1, "torch.precision": "bf16"})
        self.assertEqual((result.code, result.errors, result.steps), (0, [], []), result.output)
        self.assertNotIn("loss", result.output)
        facts = result.facts
        rates = {count: facts[f"loader_only.rate.{count}"] for count in (0, 1, 2)}
        self.assertEqual(facts["loader_only.workers_best"], max(rates, key=rates.get))
        for count, rate in rates.items():  # a sample sleeps for a millisecond
            self.assertTrue(0 < rate <= 1000 * max(count, 1) * 1.5, rates)
        self.assertEqual(facts["loader.workers"], 1)
        self.assertEqual(result.applied, {"dataloader.num_workers"})
        self.assertEqual([event["event"] for event in result.events[-2:]], ["done", "bye"])

    def test_iterable_data_has_rates_too(self):
        result = run("loader_only", "iterable.py")
        self.assertEqual((result.code, result.errors), (0, []), result.output)
        self.assertGreater(result.facts["loader_only.rate.2"], 0)

    def test_a_number_of_workers_that_fails_is_left_out(self):
        result = run("loader_only", FAULT="kill", more={"workers": [0, 2]})
        self.assertEqual((result.code, result.errors), (0, []), result.output)
        self.assertIn("loader_only.rate.0", result.facts)
        self.assertNotIn("loader_only.rate.2", result.facts)
        self.assertRegex(result.facts["loader_only.error"], "^2 workers: .*(killed by signal|exited unexpectedly|ConnectionResetError|EOFError)")


class ShortEpochs(unittest.TestCase):
    def test_the_end_of_an_epoch_is_timed_and_evaluation_is_scaled(self):
        for epochs, workers in ((3, 2), (1, 0)):  # with one epoch, the epoch ends with the script
            with self.subTest(epochs=epochs, workers=workers):
                harness.without_pauses(lambda: self.check_epochs(epochs, workers))

    def check_epochs(self, epochs, workers):
        options = ("--epochs", str(epochs), "--workers", str(workers))
        result = run("short_epochs", "epoch_ends.py", stop_after=None, options=options, more={"batches": 20})
        self.assertEqual((result.code, result.errors), (0, []), result.output)
        self.assertIn("batches 20 20\ntrained", result.output)
        self.assertEqual(len(result.steps), 20 * epochs)
        facts = result.facts
        self.assertEqual((facts["run.epochs"], facts["run.epochs_option"]), (epochs, "--epochs"))
        evaluation, end = facts["epoch_end.evaluation_seconds"], facts["epoch_end.seconds"]
        self.assertGreaterEqual(evaluation, 1.0)  # 100 batches of 10 ms, of which 20 were seen
        self.assertGreaterEqual(end, evaluation + 0.2 - 0.05)
        self.assertLess(evaluation, 10.0)

    def test_a_limit_on_steps_is_told_with_its_option(self):
        for options, name in ((("-n", "12"), "--max-steps"), (("limited", "--total-steps", "12"), "--total-steps")):
            with self.subTest(name):
                result = run("observe", "epoch_ends.py", stop_after=None, options=options)
                self.assertEqual((result.code, result.errors), (0, []), result.output)
                self.assertEqual((result.facts["run.steps"], result.facts["run.steps_option"]), (12, name))
                self.assertNotIn("run.epochs", result.facts)

    def test_variables_of_the_script_tell_the_length(self):
        rows = [
            ("EPOCHS = 4\ndef train():\n    epoch = 2\n    return of()\n", (4, None)),
            ("MAX_ITERS = 900\nsteps = 3\ndef train(n_epochs=2):\n    return of()\n", (None, 900)),
            ("epochs = '4'\nmax_steps = True\ntotal_steps = 7\ndef train():\n    return of()\n", (None, None)),
        ]
        for script, expected in rows:
            with self.subTest(script):
                variables = {"of": run_length._of_variables}
                exec(compile(script + "found = train()", "train.py", "exec"), variables)
                self.assertEqual(variables["found"], expected)

    def test_a_script_that_ends_before_its_first_step_is_heard(self):
        result = run("observe", "epoch_ends.py", stop_after=None, options=("--epochs", "0"))
        self.assertEqual((result.code, result.errors), (0, []), result.output)
        self.assertEqual([event["event"] for event in result.events], ["hello", "fact", "fact", "bye"])
        self.assertEqual(result.facts, {"run.epochs_option": "--epochs", "run.steps_option": "--max-steps"})


class LargestBatch(unittest.TestCase):
    def test_a_step_gets_the_largest_batch_of_the_epoch(self):
        result = run("largest_batch", "uneven.py", stop_after=None, STEPS="9", more={"seconds": 60})
        self.assertEqual((result.code, result.errors), (0, []), result.output)
        sizes = [int(line.split()[2]) for line in result.output.splitlines() if line.startswith("elements")]
        self.assertEqual(sizes, [32] * 5 + [320] + [32] * 3)  # the first long text of the data is in the tenth batch
        facts = result.facts
        self.assertEqual((facts["batches.compared"], facts["batches.trained"]), (60, True))
        self.assertAlmostEqual(facts["batches.largest"], 320 / ((54 * 32 + 6 * 320) / 60))
        if harness.DEVICE == harness.STAND_IN:
            # GiB: 10 of the batch, and 1 each of the model, the previous batch and the context.
            self.assertEqual(facts["batches.peak_bytes"] >> 30, 13)
        elif harness.KIND == "cpu":
            self.assertGreater(facts["batches.peak_bytes"], 100 << 20)  # torch alone needs more

    def test_reading_ahead_is_bounded_and_takes_no_data_from_a_stream(self):
        result = run("largest_batch", "uneven.py", stop_after=None, STEPS="9", more={"seconds": 0})
        self.assertEqual((result.code, result.errors), (0, []), result.output)
        self.assertNotIn("batches.compared", result.facts)  # a single batch has nothing to compare with
        result = run("largest_batch", "uneven.py", stop_after=None, STEPS="60", KIND="stream")
        self.assertEqual((result.code, result.facts["batches.trained"]), (0, False), result.output)
        self.assertEqual(len(result.steps), 60)

    def test_an_ordinary_probe_compares_the_batches_that_it_sees(self):
        facts = harness.run("uneven.py").facts
        self.assertEqual(facts["batches.compared"], 30)
        self.assertAlmostEqual(facts["batches.largest"], 320 / ((27 * 32 + 3 * 320) / 30))
        self.assertNotIn("batches.not_read", facts)
        facts = harness.run("uneven.py", env={"KIND": "stream"}).facts
        self.assertEqual(facts["batches.not_read"], "its dataset is iterable")


class Failing(unittest.TestCase):
    def test_an_error_of_the_data_set_ends_each_experiment(self):
        for mode in ("observe", "replay", "loader_only"):
            with self.subTest(mode):
                # `replay` keeps all 8 batches of the first epoch, and one of them has the broken sample.
                result = run(mode, FAULT="raise", stop_after=None, more={"batches": 8})
                self.assertEqual(result.code, 1, result.output)
                self.assertEqual(result.errors, [("failed", "ValueError: sample 5 is broken")])

    def test_a_worker_that_is_killed_ends_training(self):
        result = run("observe", FAULT="kill", WORKERS="2", stop_after=None)
        self.assertNotEqual(result.code, 0)
        self.assertEqual([kind for kind, _ in result.errors], ["failed"], result.output)

    def test_without_a_loader_there_is_nothing_to_replay_or_to_iterate(self):
        for mode in ("replay", "loader_only"):
            with self.subTest(mode):
                ((kind, message),) = run(mode, "no_loader.py").errors
                self.assertEqual(kind, "rejected")
                self.assertIn("DataLoader", message)


class FileKinds(unittest.TestCase):
    def test_files_are_told_apart_by_name_and_by_whether_they_are_mapped(self):
        sys.path.insert(0, str(harness.PYTHON))
        from gputune._hook.data_files import FilesFound, held_files, kind_of

        for path, kind in {
            "a/b.JPEG": "images",
            "b.h5": "hdf5",
            "train.tfrecord-00001-of-00010": "tfrecord",
            "shard-0001.tar": "webdataset",
            "x.tar.gz": "webdataset",
            "part.parquet": "parquet",
            "cache.arrow": "arrow",
            "x.npy": "npy",
            "lines.jsonl.gz": "text",
            "weights.bin": "other",
            "no-suffix": "other",
        }.items():
            self.assertEqual(kind_of(path), kind, path)
        self.assertEqual(kind_of("tokens.bin", is_mapped=True), "npy")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "data.h5")
            with open(path, "wb") as file:
                file.write(bytes(10))
                self.assertNotIn(path, held_files())  # written, not read
            with open(path, "rb"):
                self.assertIn(path, held_files())
            with open(os.path.join(folder, "files-1.txt"), "w") as file:
                file.write(f"h 10 {path}\nh 99 /x/other.bin\nnonsense")
            found = FilesFound(folder)
            found.read()
            self.assertEqual(found.verdict(), ("npy", "/x", 99.0))
            with open(os.path.join(folder, "files-2.txt"), "w") as file:
                file.write("o 4 /data/own/x/a b.jpg\no 6 /data/own/y/c.jpg\n")
            found.read()
            self.assertEqual(found.verdict(), ("images", "/data/own", 5.0))


if __name__ == "__main__":
    unittest.main()
