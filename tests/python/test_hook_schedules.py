"""Tests of learning-rate schedules that a script makes for a fixed number of steps."""

import unittest
from pathlib import Path

import harness

try:
    import torch
except ImportError as missing:
    raise unittest.SkipTest("torch is not installed") from missing

WILD = Path(__file__).resolve().parents[1] / "wild"


def run(kind, *options, **more):
    return harness.run(str(WILD / "schedules.py"), options=(kind, *options), **more)


class Schedules(unittest.TestCase):
    def told(self, kind):
        result = run(kind)
        self.assertEqual(result.errors, [], result.output)
        return result.facts.get("schedule"), result.facts.get("schedule.steps")

    def test_the_line_and_the_number_of_steps_are_told(self):
        words, steps = self.told("one_cycle")
        self.assertRegex(words, r"^schedules\.py:\d+ makes OneCycleLR$")
        self.assertEqual(steps, 1003)
        # The sequence has two parts. The second part is longer, but has not started.
        words, steps = self.told("sequence")
        self.assertRegex(words, r"^schedules\.py:\d+ makes CosineAnnealingLR$")
        self.assertEqual(steps, 1003)

    def test_a_schedule_of_transformers_is_the_scripts(self):
        try:
            import transformers  # noqa: F401
        except ImportError:
            harness.skip_loudly(self, "transformers is not installed")
        words, steps = self.told("transformers")
        self.assertRegex(words, r"^schedules\.py:\d+ makes get_cosine_schedule_with_warmup$")
        self.assertEqual(steps, 1003)

    def test_a_schedule_for_epochs_is_none_for_steps(self):
        self.assertEqual(self.told("of_epochs"), (None, None))

    def test_a_schedule_of_the_loaders_length_is_told_where_the_number_of_epochs_is_not_known(self):
        self.assertEqual(self.told("of_loader")[1], 3000)  # reports compare the numbers of two configs

    def test_the_error_after_its_last_step_names_the_line(self):
        result = run("one_cycle", "--total", "13", stop_after=None)
        ((kind, message),) = result.errors
        self.assertEqual((kind, len(result.steps)), ("failed", 14), result.output)
        self.assertRegex(message, r"^schedules\.py:\d+ makes OneCycleLR for 13 steps, and the script steps it more often: ")
        self.assertIn("Tried to step 14 times", message)

    def test_a_batch_size_that_gputune_sets_ends_no_schedule(self):
        result = run("one_cycle", "--total", "13", apply={"dataloader.batch_size": 4})
        self.assertEqual((result.errors, len(result.steps) >= 40), ([], True), result.output)


if __name__ == "__main__":
    unittest.main()
