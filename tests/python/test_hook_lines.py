"""Tests of the lines of a script that take its time, as the hook's samples of its stack show."""

import collections
import json
import sys
import unittest

import harness

try:
    import torch  # noqa: F401
except ImportError as missing:
    raise unittest.SkipTest("torch is not installed") from missing

SCRIPT = harness.SCRIPTS / "lines.py"


def told(place, name="lines.main", stop_after=30, **env):
    """Runs lines.py, which computes at the line that ends with the comment `place`. Returns the fact `name`."""
    result = harness.run("lines.py", stop_after=stop_after, env={"PLACE": place, **env}, experiment={"mode": "observe"})
    assert (result.code, result.errors) == (0, []), result.output
    return json.loads(result.facts[name])


def first_of(told):
    """The line with the most samples, not with the most seconds: a pause of the machine adds seconds to any line.

    Waits of the hook for gputune do not count.
    """
    return max((line for line in told["lines"] if line["kind"] != "gputune"), key=lambda line: line["samples"])


def samples_of(told):
    """The number of samples of each kind of work, without waits of the hook for gputune."""
    samples = collections.Counter()
    for line in told["lines"]:
        samples[line["kind"]] += line["samples"]
    del samples["gputune"]
    return samples


def line_of(place, script=SCRIPT):
    lines = script.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {place}"))


class Lines(unittest.TestCase):
    def assert_mostly(self, kind, told):
        """Checks that every other kind has less than half as many samples. On a busy machine the share itself is smaller."""
        samples = samples_of(told)
        others = max((count for other, count in samples.items() if other != kind), default=0)
        self.assertGreater(samples[kind], 2 * others, told["kinds"])
        self.assertGreater(told["kinds"][kind], 0)

    def test_the_line_is_named_wherever_it_is(self):
        places = {"getitem": "loading", "collate": "collating", "loop": "loop", "validate": "evaluation", "save": "checkpoint", "open": "logging"}
        for place, kind in places.items():
            with self.subTest(place):
                first = first_of(told(place, stop_after=8 if place == "save" else 30))  # a checkpoint makes many writes
                self.assertEqual((first["kind"], first["line"], first["file"]), (kind, line_of(place), str(SCRIPT)))
                self.assertTrue(any("perf_counter" in inner["code"] for inner in first["inside"]), first)

    def test_workers_tell_of_their_lines_however_they_were_started(self):
        for start in ("fork", "spawn"):
            with self.subTest(start):
                # Each epoch has new workers, which write their lines themselves.
                first = first_of(told("getitem", "lines.workers", WORKERS="1", START=start))
                self.assertEqual((first["kind"], first["line"]), ("loading", line_of("getitem")))

    def test_a_sampler_is_at_work_in_the_training_process_whatever_workers_there_are(self):
        for workers in ("0", "1"):
            with self.subTest(workers=workers):
                text = told("sampler", WORKERS=workers)
                first = first_of(text)
                self.assertEqual((first["kind"], first["line"], first["file"]), ("choosing", line_of("sampler"), str(SCRIPT)))
                self.assert_mostly("choosing", text)

    def test_python_within_the_model_is_told_from_what_torch_computes(self):
        for place in ("hook", "layer"):
            with self.subTest(place):
                text = told(place)
                first = first_of(text)
                self.assertEqual((first["kind"], first["line"], first["file"]), ("python", line_of(place), str(SCRIPT)))
                self.assertTrue(any("perf_counter" in inner["code"] for inner in first["inside"]), first)
                self.assert_mostly("python", text)
        self.assert_mostly("forward", told("torch", stop_after=200))

    def test_a_call_that_keeps_the_lock_costs_looks_and_no_time(self):
        def check():
            first = next(line for line in told("hold")["lines"] if line["kind"] != "gputune")
            self.assertIn(first["line"], (line_of("hold"), line_of("hold") + 1, line_of("hold") + 2))
            self.assertGreater(first["share"], 0.5)
            self.assertGreater(first["late"], 0.5)

        harness.without_pauses(check)

    def test_a_plain_probe_has_no_sampler(self):
        result = harness.run("lines.py", stop_after=20, env={"PLACE": "loop"})
        self.assertNotIn("lines.main", result.facts)

    def test_tables_are_bounded_and_what_is_told_fits(self):
        sys.path.insert(0, str(harness.PYTHON))
        from gputune._hook.line_table import LineTable, Place, Seen

        table = LineTable()
        for number in range(5000):
            table.add(Seen("loop", Place("/x/" + "y" * 300 + ".py", number, "f" * 90), None, ""), 0.02)
        table.add(Seen("loop", Place("/x/hot.py", 7, "f"), None, ""), 1000.0)
        self.assertLessEqual(len(table.rows()), 513)
        text = table.told()
        self.assertLessEqual(len(text), 4096)
        self.assertEqual(json.loads(text)["lines"][0]["line"], 7)
        self.assertAlmostEqual(json.loads(text)["seconds"], 1100.0, places=1)


class OtherLoaders(unittest.TestCase):
    """Loaders other than a DataLoader."""

    SCRIPT = harness.SCRIPTS / "other_loaders.py"

    def test_the_line_of_next_is_found_in_a_large_function(self):
        sys.path.insert(0, str(harness.PYTHON))
        from gputune._hook.asked_iterators import asking

        # Names after the first 256 need an extended instruction.
        names = "".join(f"    name_{number}\n" for number in range(300))
        functions = {}
        exec(f"def train(it):\n{names}    next(it)\n    next\n", functions)
        self.assertEqual(asking(functions["train"].__code__).by_next, {302, 303})

    def run_with(self, loader, apply=None, mode="observe"):
        return harness.run("other_loaders.py", apply, stop_after=80, env={"LOADER": loader}, experiment={"mode": mode})

    def test_the_time_of_an_iterator_is_a_wait_for_data_wherever_it_comes_from(self):
        loaders = {
            "package": ("data_wait", "package", "FastLoader"),
            "progress": ("data_wait", "progress", "FastLoader"),
            "next": ("data_wait", "next", "FastLoader"),
            "threads": ("data_wait", "package", "Prefetcher"),
            "pipeline": ("loading", "decode", "Pipeline"),
            "generator": ("loading", "generator", "batches()"),
            "map": ("loading", "decode", "an iterator"),
        }
        for loader, (kind, place, name) in loaders.items():
            with self.subTest(loader):
                harness.without_pauses(lambda: self.check_wait(loader, kind, place, name))

    def check_wait(self, loader, kind, place, name):
        result = self.run_with(loader)
        self.assertEqual((result.code, result.errors), (0, []), result.output)
        self.assertEqual(result.facts.get("loader.other"), name)
        self.assertIn("lines.main", result.facts)
        text = json.loads(result.facts["lines.main"])
        first = first_of(text)
        self.assertEqual((first["kind"], first["line"]), (kind, line_of(place, self.SCRIPT)), text)
        self.assertGreater(text["kinds"][kind], 0.6)
        waits = [event["seconds"] for event in result.named("phase") if event["name"] == "data_wait"]
        self.assertTrue(0.009 < sum(waits[20:]) / len(waits[20:]) < 0.025, waits)

    def test_a_generator_that_trains_is_the_loop(self):
        result = self.run_with("trains")
        first = first_of(json.loads(result.facts["lines.main"]))
        self.assertEqual((first["kind"], first["line"]), ("loop", line_of("trains", self.SCRIPT)))
        seconds = sum(event["seconds"] for event in result.named("phase") if event["name"] == "data_wait")
        self.assertLess(seconds, 0.4 * 80 * 0.015)
        self.assertNotIn("loader.other", result.facts)

    def test_settings_that_cannot_be_set_name_the_loader(self):
        result = harness.run("other_loaders.py", {"dataloader.num_workers": 2}, env={"LOADER": "package"})
        reason = "the training loop gets its batches from FastLoader, and gputune can set only a torch.utils.data.DataLoader"
        self.assertEqual(result.facts["loader.other"], "FastLoader")
        self.assertEqual([kind for kind, _ in result.errors], ["not_applied"])
        self.assertTrue(result.errors[0][1].endswith(reason), result.errors)


if __name__ == "__main__":
    unittest.main()
