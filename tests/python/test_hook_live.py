"""Tests of several configs in the same process: settings that change between two steps."""

import itertools
import unittest

import harness

try:
    import torch
except ImportError as missing:
    raise unittest.SkipTest("torch is not installed") from missing

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
BATCH, WORKERS, PRECISION = "dataloader.batch_size", "dataloader.num_workers", "torch.precision"
ACCUMULATION, PERSISTENT, PREFETCH = "torch.grad_accumulation", "dataloader.persistent_workers", "dataloader.prefetch_factor"


def samples(result):
    """The sample counts of the steps, without the first step: its batch may have been fetched before the settings changed."""
    return {step["samples"] for step in result.steps[1:]}


def epochs(result):
    """The indices of the samples in each batch, for each epoch, including an epoch that was stopped."""
    lines = [line.split()[1:] for line in result.output.splitlines() if line.startswith("epoch")]
    return [[[int(index) for index in batch.split(",")] for batch in line] for line in lines]


class Live(unittest.TestCase):
    def run_live(self, script, *segments, stop_after=12, **options):
        result = harness.run(script, segments[0], stop_after=stop_after, segments=segments[1:], **options)
        self.assertEqual((result.code, result.errors), (0, []), result.output)
        parts = result.segments
        self.assertEqual(len(parts), len(segments), result.output)
        for part, settings in zip(parts[1:], segments[1:]):
            self.assertNotIn("refused", part.named("configured")[0])
        return result, parts

    def refusal(self, script, before, after, **options):
        result = harness.run(script, before, stop_after=12, segments=(after,), **options)
        ((answer),) = result.named("configured")
        return answer.get("refused")

    def test_batches_and_workers_change(self):
        segments = (
            {BATCH: 8, WORKERS: 0},
            {BATCH: 32, WORKERS: 1},
            {BATCH: 16, WORKERS: 2, PERSISTENT: True, PREFETCH: 3},
            {BATCH: 4, WORKERS: 0},
        )
        result, parts = self.run_live("epochs.py", *segments)
        self.assertEqual([samples(part) for part in parts], [{8}, {32}, {16}, {4}])
        self.assertEqual([part.facts["loader.workers"] for part in parts], [0, 1, 2, 0])
        self.assertEqual([part.facts["loader.batch_size"] for part in parts], [8, 32, 16, 4])
        applied = [event["target"] for event in result.named("applied")]
        for target in {target for settings in segments for target in settings}:
            self.assertEqual(applied.count(target), sum(target in settings for settings in segments), target)

    def test_the_sampler_goes_on_and_no_sample_comes_twice(self):
        sizes = [8, 32, 4, 16]
        # The order to hold may come late, so the epoch has enough samples for minutes.
        result, _ = self.run_live("epochs.py", *({BATCH: size} for size in sizes), stop_after=7, env={"LENGTH": "200000"})
        epoch = epochs(result)[0]
        self.assertEqual(len(set(sum(epoch, []))), len(sum(epoch, [])))
        self.assertEqual([size for size, _ in itertools.groupby(map(len, epoch))], sizes)
        # With workers, only batches that were loaded in advance may be missing.
        with_workers = ({BATCH: 8, WORKERS: 1}, {BATCH: 8, WORKERS: 2}, {BATCH: 4, WORKERS: 1}, {BATCH: 8, WORKERS: 0})
        result, _ = self.run_live("epochs.py", *with_workers, stop_after=7, env={"LENGTH": "480"})
        epoch = sum(epochs(result)[0], [])
        self.assertEqual(len(set(epoch)), len(epoch))
        if len(epochs(result)) > 1:
            self.assertGreater(len(epoch), 480 - 8 * 2 - 8 * 4 - 4 * 2 - 8)

    def test_an_epoch_that_is_over_takes_the_new_settings_at_the_next(self):
        result, parts = self.run_live("epochs.py", {BATCH: 8}, {BATCH: 16}, stop_after=8, env={"LENGTH": "64"})
        self.assertEqual(samples(parts[1]), {16})
        self.assertEqual({len(batch) for batch in epochs(result)[-2]}, {16})

    def test_a_sampler_of_another_kind_starts_over(self):
        _, parts = self.run_live("epochs.py", {BATCH: 8}, {BATCH: 16}, env={"SAMPLER": "1"})
        self.assertEqual([samples(part) for part in parts], [{8}, {16}])

    def test_what_the_script_takes_by_an_option_at_first_changes_too(self):
        _, parts = self.run_live("epochs.py", {}, {BATCH: 16, WORKERS: 1}, {BATCH: 2}, {})
        self.assertEqual([samples(part) for part in parts], [{8}, {16}, {2}, {8}])
        self.assertEqual(parts[1].applied, {BATCH, WORKERS})
        self.assertEqual(parts[-1].facts["loader.workers"], 0)

    @harness.on_the_cpu
    def test_the_precision_changes(self):
        for env in ({}, {"REGION": "1"}):
            with self.subTest(env):
                values = ["fp32", "bf16", "fp32"]
                _, parts = self.run_live("epochs.py", *({PRECISION: value} for value in values), env=env)
                self.assertEqual([part.facts["precision"] for part in parts], values)
                self.assertEqual([part.applied for part in parts], [{PRECISION}] * 3)

    def test_pieces_of_a_batch_change_where_they_are_sound(self):
        segments = ({ACCUMULATION: 1, BATCH: 16}, {ACCUMULATION: 4, BATCH: 16}, {ACCUMULATION: 2, BATCH: 8})
        _, parts = self.run_live("epochs.py", *segments, stop_after=110)
        self.assertEqual([samples(part) for part in parts], [{16}, {16}, {8}])
        self.assertEqual([part.facts["loader.batch_size"] for part in parts], [16, 4, 4])
        self.assertEqual([part.facts["accumulation"] for part in parts], [1, 4, 2])
        result = harness.run("epochs.py", segments[0], stop_after=12, segments=segments[1:2], env={"MODEL": "scaled"})
        self.assertIn("batch normalisation", result.errors[0][1])

    def test_the_wait_between_two_settings_belongs_to_no_step(self):
        def check():
            result, parts = self.run_live("epochs.py", {BATCH: 8}, {BATCH: 8, WORKERS: 1})
            held, first = result.named("held"), parts[1].named("phase")
            self.assertEqual(len(held), 1)
            self.assertTrue(all(phase["seconds"] < 30 for phase in first))
            self.assertNotIn("optimizer", {phase["name"] for phase in first if phase["seconds"] > 0.5})

        harness.without_pauses(check)

    def test_a_look_at_the_loader_beside_the_training_changes_nothing(self):
        result, parts = self.run_live("epochs.py", {BATCH: 8}, {BATCH: 32}, env={"PICTURE": "1"})
        self.assertEqual(len(parts), 2)
        self.assertEqual({len(batch) for batch in epochs(result)[0][-3:]}, {32})

    def test_a_batch_sampler_in_another_has_the_new_size(self):
        result, _ = self.run_live("epochs.py", {BATCH: 8}, {BATCH: 32}, env={"SAMPLER": "wrapped"})
        self.assertEqual({len(batch) for batch in epochs(result)[0][-3:]}, {32})

    def test_pieces_that_are_searched_no_more_are_one(self):
        _, parts = self.run_live("epochs.py", {ACCUMULATION: 2, BATCH: 8}, {BATCH: 8}, stop_after=110)
        self.assertEqual([part.facts["accumulation"] for part in parts], [2, 1])

    def test_what_cannot_change_is_refused_with_the_reason(self):
        self.assertIn("fp16", self.refusal("epochs.py", {PRECISION: "fp32"}, {PRECISION: "fp16"}))
        self.assertIn("when the script starts", self.refusal("epochs.py", {}, {PRECISION: "bf16"}))
        self.assertIn("more than one DataLoader", self.refusal("epochs.py", {}, {BATCH: 16}, env={"TWICE": "1"}))
        self.assertIn("when the script starts", self.refusal("epochs.py", {}, {"torch.fused_optimizer": True}))

    @harness.needs_kernels
    @unittest.skipIf(VERSION < (2, 0), "torch 2.0 brought compile")
    def test_a_compiled_model_keeps_its_batch(self):
        compiled = {"env": {"COMPILE": "1"}}
        self.assertIn("compiled", self.refusal("epochs.py", {BATCH: 8}, {BATCH: 16}, **compiled))
        self.assertIsNone(self.refusal("epochs.py", {WORKERS: 0}, {WORKERS: 1}, **compiled))

    def test_a_process_that_is_not_asked_knows_only_how_to_stop(self):
        result = harness.run("epochs.py", {BATCH: 8})
        self.assertEqual(result.named("hello")[0]["version"], 1)


def load_tests(_loader, tests, _pattern):
    return harness.wanted(tests)


if __name__ == "__main__":
    unittest.main()
