"""Tests of the number of samples in a step, with scripts and loaders whose tensor shapes suggest another number."""

import random
import sys
import tempfile
import unittest
from pathlib import Path

import harness

try:
    import torch
except ImportError as missing:
    raise unittest.SkipTest("torch is not installed") from missing

from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, SequentialSampler, get_worker_info

sys.path.insert(0, str(harness.PYTHON))

from gputune._hook import samples, shards  # noqa: E402

WILD = Path(__file__).resolve().parents[1] / "wild"
BY = "samples.counted_by"


def run(script, *options, **more):
    return harness.run(str(WILD / script), options=options, **more)


class Scripts(unittest.TestCase):
    def test_what_the_sampler_handed_out_counts_and_a_mismatch_is_told(self):
        result = run("collated.py", "packed", "--workers", "1", "--samples", "20", stop_after=None)
        self.assertEqual([step["samples"] for step in result.steps], [6, 6, 6, 2] * 4, result.output)
        self.assertEqual(result.facts[BY], "sampler")
        mismatch = "the leading dimension of a batch is 1, and its sampler handed out 6"
        self.assertEqual(result.facts["samples.mismatch"], mismatch)

    def test_batches_that_are_replayed_keep_their_samples(self):
        result = run("sampler_without_len.py", experiment={"mode": "replay", "batches": 4}, stop_after=16)
        self.assertEqual(result.errors, [], result.output)
        self.assertEqual([step["samples"] for step in result.steps][:16], [3, 6, 5, 2] * 4)

    def test_a_loader_with_one_endless_iterator_is_found_and_set(self):
        result = run("endless.py", apply={"dataloader.batch_size": 16, "dataloader.num_workers": 1}, stop_after=20)
        self.assertEqual({step["samples"] for step in result.steps}, {16}, result.output)
        self.assertEqual((result.errors, result.facts["loader.workers"]), ([], 1), result.output)
        self.assertIn("data_wait", result.phases)

    def test_without_a_loader_nobody_knows_a_batch_with_time_first(self):
        result = run("no_loader.py")
        self.assertEqual({step.get("samples") for step in result.steps}, {None}, result.output)
        self.assertNotIn(BY, result.facts)

    def test_without_a_loader_the_leading_dimension_of_the_input_counts_and_is_named(self):
        result = harness.run("no_loader.py")
        self.assertEqual({step["samples"] for step in result.steps}, {24})
        self.assertEqual(result.facts[BY], "leading dimension of the model's input")


class Skipped(unittest.TestCase):
    def test_batches_without_gradients_do_not_count(self):
        skips = samples.Skips()
        self.assertEqual([skips.trained([8], 1), skips.trained([8, 8, 8], 1), skips.trained([8] * 4, 2)], [8, 8, 16])
        # A script that adds up the losses of several batches has one backward pass for all of them.
        sums = samples.Skips()
        self.assertEqual([sums.trained([8, 8], 1) for _ in range(3)], [16, 16, 16])
        # If no backward pass was seen, as in a captured graph, all batches count.
        self.assertEqual(samples.Skips().trained([8, 8], 0), 16)

    def test_of_zipped_loaders_the_first_counts_and_their_sizes_keep_their_ratio(self):
        for size, expected in ((None, {4}), (8, {8})):
            settings = {} if size is None else {"dataloader.batch_size": size}
            result = run("zipped.py", apply=settings, stop_after=8)
            self.assertEqual({step["samples"] for step in result.steps}, expected, result.output)
            self.assertIn(f"sizes {size or 4} {3 * (size or 4)}", result.output)


class Shuffled(IterableDataset):
    """200 samples in random order. `way` says what a worker yields: all, its own part, or samples drawn with replacement.

    With `few values` a worker yields its own part, but the samples have only 20 different values.
    """

    def __init__(self, way):
        self.way = way

    def __iter__(self):
        worker, workers = get_worker_info().id, get_worker_info().num_workers
        order = random.Random(worker)
        mine = list(range(200)) if self.way != "parts" else list(range(worker, 200, workers))
        if self.way == "few values":
            mine = [number % 20 for number in mine[worker::workers]]
        order.shuffle(mine)
        if self.way == "drawn":
            mine = order.choices(mine, k=100)
        return iter([torch.full((40,), float(number)) for number in mine])


class Repeats(unittest.TestCase):
    """Workers that ask for their number, but may still all yield the same samples in different orders."""

    def test_samples_that_several_workers_yield_are_found(self):
        empty = tempfile.TemporaryDirectory()
        self.addCleanup(empty.cleanup)
        for way, persistent, expected in (
            ("all", False, True),
            ("all", True, True),
            ("parts", True, False),
            ("few values", False, False),
            ("drawn", False, False),
        ):
            loader = DataLoader(Shuffled(way), 8, num_workers=2, persistent_workers=persistent)
            parts, epochs = None, []
            for _ in range(2):
                iterator = iter(loader)
                parts = parts if parts and persistent else shards.Parts(loader, 1, parts)
                for batch in iterator:
                    parts.add(batch, iterator)
                epochs.append((parts.repeated(empty.name, True) or "").startswith("Shuffled.__iter__, "))
            self.assertEqual(epochs, [expected] * 2, (way, persistent))


class Recovered(unittest.TestCase):
    """Scripts that may train with other batches than `--batch-size` says, such as after memory ran out."""

    def sizes(self, way, size=32, **more):
        result = run("recovers.py", way, "--batch-size", str(size), **more)
        self.assertEqual(result.errors, [], result.output)
        names = ("recovery.from", "recovery.to", "loader.batch_size", "loader.batch_size_before")
        return result, tuple(result.facts.get(name) for name in names)

    def test_a_lack_of_memory_that_the_script_catches_is_told_with_both_sizes(self):
        for way, sizes in {"halves": (32, 16, 16, None), "retries": (32, 16, 16, None), "own_batches": (32, 16, None, None)}.items():
            result, told = self.sizes(way)
            self.assertEqual(told, sizes, way)
            self.assertEqual({step["samples"] for step in result.steps[:20]}, {16}, way)

    def test_accelerate_finds_a_smaller_batch(self):
        try:
            import accelerate  # noqa: F401
        except ImportError:
            harness.skip_loudly(self, "accelerate is not installed")
        _, (tried, found, size, _) = self.sizes("accelerate")
        self.assertEqual((tried, found), (32, size))
        self.assertLess(size, 25)

    def test_another_loader_in_the_middle_is_told(self):
        _, told = self.sizes("changes", stop_after=90)
        self.assertEqual(told, (None, None, 16, 32))

    def test_healthy_scripts_are_left_alone(self):
        for way in ("healthy", "skips"):
            _, told = self.sizes(way, 16)
            self.assertEqual(told, (None, None, 16, None), way)

    def test_a_script_that_gives_up_ran_out_of_memory(self):
        result = run("recovers.py", "halves", "--batch-size", "32", apply={"dataloader.batch_size": 32}, stop_after=None)
        ((kind, message),) = result.errors
        self.assertEqual(kind, "out_of_memory", result.output)
        self.assertIn("memory ran out before", message)


class Numbers(Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, index):
        return torch.full((9, 4), float(index))


class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.zeros(9, 4) for _ in range(20))


class Whole(Dataset):
    """A dataset whose items are whole batches."""

    def __init__(self, batch):
        self.batch = batch

    def __len__(self):
        return 5

    def __getitem__(self, index):
        return self.batch


class Buckets:
    """A batch sampler without a length. It yields indices in a list, a tensor and a tuple."""

    def __iter__(self):
        yield [0, 1, 2]
        yield torch.arange(5)
        yield (7, 8)


def time_first(items):
    return torch.stack(items, dim=1)


def joined(items):
    return torch.cat(items)


def counts(loader, batch_size=None):
    """The number of samples of each batch, and the counter, whose `by` names the source of the number."""
    samples_of, counter, iterator = [], samples.BatchCounter(), iter(loader)
    for batch in iterator:
        samples_of.append(counter.count(iterator, batch, batch_size))
    return samples_of, counter


class Loaders(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        samples.install()

    def test_the_indices_count_whatever_collate_makes_of_them(self):
        for collate in (None, time_first, joined):
            for workers in (0, 2):
                with self.subTest(collate=collate, workers=workers):
                    loader = DataLoader(Numbers(), 6, shuffle=True, collate_fn=collate, num_workers=workers)
                    counted, counter = counts(loader, 6)
                    self.assertEqual((counted, counter.by), ([6, 6, 6, 2], samples.SAMPLER))
                    self.assertEqual(counter.mismatch is None, collate is None)

    def test_the_indices_of_a_batch_sampler_without_a_length_count(self):
        for workers in (0, 2):
            loader = DataLoader(Numbers(), batch_sampler=Buckets(), collate_fn=joined, num_workers=workers)
            counted, counter = counts(loader)
            self.assertEqual((counted, counter.by), ([3, 5, 2], samples.SAMPLER))

    def test_indices_for_a_data_set_that_takes_many_count_and_a_key_does_not(self):
        class Many(Numbers):
            def __getitem__(self, index):
                return torch.zeros(9, len(index) if isinstance(index, list) else 1)

        sampler = BatchSampler(SequentialSampler(Numbers()), 8, drop_last=False)
        counted, counter = counts(DataLoader(Many(), batch_size=None, sampler=sampler))
        self.assertEqual((counted, counter.by), ([8, 8, 4], samples.SAMPLER))
        counted, counter = counts(DataLoader(Many(), batch_size=None, sampler=[(0, 1), (2, 3)]))
        self.assertEqual((counted, counter.by), ([9, 9], samples.BATCH))

    def test_workers_that_persist_begin_each_epoch_anew(self):
        loader = DataLoader(Numbers(), 6, num_workers=2, persistent_workers=True, collate_fn=time_first)
        counter = samples.BatchCounter()
        iterator = iter(loader)
        counter.count(iterator, next(iterator), 6)  # the script leaves the epoch after this batch
        iterator = iter(loader)
        self.assertEqual([counter.count(iterator, batch, 6) for batch in iterator], [6, 6, 6, 2])

    def test_a_stream_has_the_batch_size_of_its_loader_unless_its_batches_look_like_it(self):
        for workers in (0, 1):
            counted, counter = counts(DataLoader(Stream(), 6, num_workers=workers), 6)
            self.assertEqual((counted, counter.by, counter.mismatch), ([6, 6, 6, 2], samples.BATCH, None))
        counted, counter = counts(DataLoader(Stream(), 5, collate_fn=time_first), 5)
        self.assertEqual((counted, counter.by), ([5] * 4, samples.BATCH_SIZE))
        self.assertEqual(counter.mismatch, "the leading dimension of a batch is 9, and the loader's batch size is 5")


class Shapes(unittest.TestCase):
    """Datasets that yield whole batches, so no sampler knows the number of samples."""

    def of_step(self, batch, model):
        counter, shapes = samples.BatchCounter(), samples.Samples()
        shapes.modules = lambda: [model]
        iterator = iter(DataLoader(Whole(batch), batch_size=None))
        return shapes.of_step(counter.count(iterator, next(iterator), None), counter, 1), shapes.by

    def test_a_leading_dimension_counts_only_where_it_can_be_nothing_else(self):
        points = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2])
        lstm, linear = nn.LSTM(4, 4), nn.Linear(4, 4)
        attention = nn.TransformerEncoderLayer(4, 2, batch_first=True)
        for batch, model, expected in [
            (torch.zeros(6, 4), linear, 6),
            (torch.zeros(6, 9, 4), linear, 6),
            (torch.zeros(6, 9, 4), lstm, None),  # may be time first
            (torch.zeros(6, 9, 4), attention, 6),
            (torch.zeros(6, 3, 8, 8), lstm, 6),  # pictures
            ((torch.zeros(1, 4096).long(), torch.zeros(1, 4096)), linear, None),  # packed tokens
            (torch.zeros(1, 4096), linear, 1),
            ((torch.zeros(8, 3), points), linear, None),  # points with a batch vector
            ((torch.zeros(8, 3), torch.arange(8)), linear, 8),
            ((torch.zeros(8, 3), torch.tensor([3, 1, 0, 2, 2, 1, 0, 1])), linear, 8),  # labels
        ]:
            with self.subTest(batch=batch, model=type(model).__name__):
                by = samples.BATCH if expected is not None else None
                self.assertEqual(self.of_step(batch, model), (expected, by))

    def test_inputs_are_looked_at_in_the_same_way(self):
        for inputs, model, expected in [
            ([torch.zeros(35, 20)], nn.Linear(4, 4), 35),
            ([torch.zeros(35, 20)], nn.LSTM(4, 4), None),
            ([torch.zeros(35, 20), torch.zeros(2, 20, 4)], nn.Linear(4, 4), None),
        ]:
            shapes = samples.Samples()
            shapes.modules = lambda model=model: [model]
            shapes.add_input(model, inputs, {})
            self.assertEqual(shapes.of_step(None, None, 1), expected)

    def test_samples_that_several_modules_get_count_once(self):
        actor, critic, batch = nn.Linear(4, 2), nn.Linear(4, 1), torch.zeros(8, 4)
        shapes = samples.Samples()
        for calls, expected in [([critic, actor], 8), ([actor, actor, critic], 16), ([actor], 8)]:
            for module in calls:
                shapes.add_input(module, [batch], {})
            self.assertEqual(shapes.of_step(None, None, len(calls)), expected)
        shapes.add_input(actor, [torch.zeros(5, 4)], {})
        shapes.add_input(critic, [batch], {})
        self.assertIsNone(shapes.of_step(None, None, 2))


if __name__ == "__main__":
    unittest.main()
