"""The generator by itself, without a process: `python -m unittest discover -s benches/diagnosis/jobs`."""

from __future__ import annotations

import ast
import json
import pathlib
import re
import sys
import unittest
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import check  # noqa: E402
import judge  # noqa: E402
import said  # noqa: E402
import tally  # noqa: E402
from job import FIRST_JUDGING_SEED, SET, SICK, Job, cured, jobs, seeds_of  # noqa: E402
from kinds import BY_NAME, FIRST_KINDS, FIRST_MIXTURES, KINDS, MIXTURES, SECOND  # noqa: E402
from measure import Printed  # noqa: E402
from text import MARK, marked, without_marks  # noqa: E402
from truth import BRANCHES, HEALTHY, HELD_OUT, SCALINGS, SEEN  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[3]
SOME = range(1, 6)


def job(name: str, seed: int = 1) -> Job:
    return next(one for one in jobs(seeds=range(seed, seed + 1)) if one.kind.name == name)


def told(cause: str | None, is_healthy: bool = False, others: tuple[str, ...] = (), **members: Any) -> dict[str, Any]:
    """What `gputune diagnose --json` prints, as far as it is read."""
    first = None if cause is None else {"cause": cause, "worth": {"times": 3.0, "by_parameters": 2.0}, **members}
    return {"told": {"bottleneck": first, "is_healthy": is_healthy, "elapsed_s": 40.0,
                     "others": [{"cause": other, "worth": {}} for other in others]}}


class Scripts(unittest.TestCase):
    def test_every_variant_is_a_script_without_marks(self) -> None:
        for one in jobs(seeds=SOME):
            for variant in one.variants:
                source = one.script(variant).source
                ast.parse(source)
                self.assertIsNone(MARK.search(source), one.name)
                self.assertNotIn("#@", source)

    def test_the_same_kind_and_seed_are_the_same_script(self) -> None:
        for one in jobs(seeds=SOME):
            self.assertEqual(one.script().source, job(one.kind.name, one.seed).script().source)

    def test_seeds_differ(self) -> None:
        for kind in (*KINDS, *MIXTURES):
            self.assertGreater(len({Job(kind, seed).script().source for seed in range(1, 20)}), 10, kind.name)

    def test_some_have_a_main_and_some_have_not(self) -> None:
        self.assertEqual({"def main():" in one.script().source for one in jobs(seeds=SOME)}, {True, False})

    def test_nothing_tells_a_job_from_any_other_script(self) -> None:
        words = [*(kind.name for kind in (*KINDS, *MIXTURES)), "disease", "gputune", "guilty", "cure"]
        for one in jobs(seeds=SOME):
            source = one.script().source.lower()
            self.assertEqual([word for word in words if word in source], [], one.name)

    def test_a_cure_changes_the_script_and_keeps_what_is_trained(self) -> None:
        for one in jobs(seeds=SOME):
            if one.is_healthy:
                continue
            sick, well = one.script().source, one.script(cured(*range(len(one.kinds)))).source
            self.assertNotEqual(sick, well, one.name)
            self.assertIn(one.model.make, well)
            self.assertIn(f"torch.optim.{one.optimizer}(", well)

    def test_a_setting_changes_nothing_but_itself(self) -> None:
        for one in jobs(seeds=SOME):
            if one.setting:
                sick, well = one.script().source.splitlines(), one.script(SET).source.splitlines()
                changed = [pair for pair in zip(sick, well) if pair[0] != pair[1]]
                self.assertEqual((len(sick), len(changed)), (len(well), 1), one.name)

    def test_a_mixture_is_cured_one_by_one(self) -> None:
        for mixture in MIXTURES:
            one = Job(mixture, 1)
            variants = [SICK, cured(0), cured(1), cured(0, 1)]
            self.assertEqual(len({one.script(variant).source for variant in variants}), 4, mixture.name)
            self.assertEqual(set(one.script(cured(0)).lines), {1})
            self.assertEqual(set(one.script(cured(1)).lines), {0})

    def test_a_fixed_number_of_steps_holds_whole_periods(self) -> None:
        for one in jobs(seeds=SOME):
            self.assertEqual(one.steps() % one.period(), 0)
            self.assertGreaterEqual(one.steps(), 3 * one.period())
            self.assertEqual(one.period() % 10, 0)


class Truths(unittest.TestCase):
    def test_every_truth_is_a_record(self) -> None:
        for one in jobs(seeds=SOME):
            record = json.loads(json.dumps(one.truth().record()))
            self.assertIn(record["branch"], BRANCHES)
            self.assertEqual(record["branch"] == HEALTHY, not record["diseases"])
            for disease in record["diseases"]:
                self.assertIn(disease["scaling"], (None, *SCALINGS))
                self.assertGreater(disease["least"], 1.0)
                self.assertTrue(disease["remedy"])

    def test_the_guilty_line_is_the_one_that_is_meant(self) -> None:
        expected = {"collate_computes": "standardise(extra)", "shared_lock": "with self.lock", "python_in_loop": "tokenise(prompts",
                    "evaluation_often": "evaluate(model", "slow_storage": "time.sleep(LATENCY)", "metrics_in_loop": "error_rate(",
                    "checkpoint_often": "save_checkpoint(path", "file_lock": "fcntl.LOCK_EX", "tracker_waits": "time.sleep(",
                    "packed_records": "unpack(self.records", "whole_column": 'self.table["duration"]', "choosing_batches": "yield min(",
                    "small_reads": "time.sleep(ROUND_TRIP)", "nested_lists": "list(outline)", "limited_service": "time.sleep(",
                    "activation_hooks": "math.sqrt(", "frees_memory": "gc.collect()", "scores_by_callback": "selection.on_step_end(",
                    "pictures_of_weights": "draw(pictures", "corpus_each_epoch": "dataset.resample("}
        for name, words in expected.items():
            one = job(name)
            first = one.truth().diseases[0].lines[0]
            self.assertIn(words, one.script().source.splitlines()[first - 1], name)

    def test_every_cause_of_the_host_has_lines(self) -> None:
        for one in jobs(seeds=SOME):
            for disease in one.truth().diseases:
                self.assertEqual(bool(disease.lines), disease.kind != "tiny_batch", disease.kind)

    def test_workers_cure_what_scales_and_nothing_shared(self) -> None:
        for kind in KINDS:
            if kind.scaling is not None:
                self.assertEqual(kind.setting is None, kind.scaling == "shared", kind.name)


class Halves(unittest.TestCase):
    def test_each_branch_is_in_both_halves(self) -> None:
        halves = {half: {kind.branch for kind in KINDS if kind.half == half} for half in (SEEN, HELD_OUT)}
        self.assertEqual(halves[SEEN] - {"compute"}, halves[HELD_OUT])

    def test_half_of_the_kinds_are_kept_out(self) -> None:
        first = (*FIRST_KINDS, *FIRST_MIXTURES)
        kept = sum(kind.half == HELD_OUT for kind in first)
        self.assertLessEqual(abs(2 * kept - len(first)), 2)

    def test_the_second_set_is_kept_out_as_a_whole(self) -> None:
        self.assertEqual({kind.half for kind in SECOND}, {HELD_OUT})
        self.assertFalse({BY_NAME[name] for mixture in FIRST_MIXTURES for name in (mixture.first, mixture.second)} & set(SECOND))

    def test_a_mixture_is_of_its_own_half(self) -> None:
        for mixture in MIXTURES:
            if mixture.half == SEEN:
                self.assertEqual({BY_NAME[mixture.first].half, BY_NAME[mixture.second].half}, {SEEN}, mixture.name)

    def test_rules_are_made_with_other_seeds_than_they_are_judged_with(self) -> None:
        self.assertEqual(list(seeds_of(SEEN, 2)), [1, 2])
        for half in (HELD_OUT, None):
            self.assertEqual(seeds_of(half, 1).start, FIRST_JUDGING_SEED)
        self.assertTrue(all(one.half == SEEN for one in jobs(SEEN)))


class Marks(unittest.TestCase):
    def test_marks_are_found_and_taken_off(self) -> None:
        script = "a = 1\n" + marked("def f():\n    x = 2\n\n    return x", 1, "x = 2") + "\nb = f()  #@0!\n#@"
        found = without_marks(script)
        self.assertEqual(found.source, "a = 1\ndef f():\n    x = 2\n\n    return x\nb = f()\n")
        self.assertEqual(found.lines, {0: (6,), 1: (3, 2, 5)})


class Measured(unittest.TestCase):
    def test_a_rate_is_that_between_lines_after_the_warm_up(self) -> None:
        printed = Printed([(0.0, 10), (5.0, 20), (6.0, 30), (7.0, 40)])
        self.assertEqual(printed.steps_per_second(20), 10.0)
        self.assertRaises(RuntimeError, printed.steps_per_second, 40)

    def test_a_cure_that_brings_too_little_fails(self) -> None:
        one = job("shared_lock")
        self.assertEqual(check.fails(one, {"cured0": 2.5}), [])
        self.assertEqual(len(check.fails(one, {"cured0": 1.2})), 1)
        self.assertEqual(len(check.fails(one, {"cured0": 2.5, "more": 1.9})), 1)
        self.assertEqual(len(check.fails(job("slow_storage"), {"cured0": 2.5, "set": 1.0})), 1)

    def test_a_healthy_job_that_waits_for_data_fails(self) -> None:
        self.assertEqual(check.fails(job("healthy_clipping"), {"replayed": 1.03}), [])
        self.assertEqual(len(check.fails(job("healthy_clipping"), {"replayed": 1.4})), 1)

    def test_a_mixture_fails_in_the_wrong_order(self) -> None:
        one = job("storage_and_python")
        self.assertEqual(check.fails(one, {"cured0": 2.0, "cured1": 1.1, "cured01": 4.0}), [])
        self.assertEqual(len(check.fails(one, {"cured0": 1.3, "cured1": 1.6, "cured01": 4.0})), 1)
        self.assertEqual(len(check.fails(one, {"cured0": 2.0, "cured1": 1.1, "cured01": 2.1})), 1)


class Judging(unittest.TestCase):
    def judged(self, name: str, line: dict[str, Any], worth: dict[str, float] | None = None, variant: Any = SICK) -> judge.Judged:
        return judge.judged(job(name), variant, line, worth)

    def test_branch_and_cause_are_judged_apart(self) -> None:
        right = self.judged("slow_storage", told("storage"), {"cured0": 4.0, "set": 3.0})
        self.assertEqual((right.top, right.refined, right.predicted, right.brought), (True, True, 3.0, 4.0))
        self.assertEqual((right.by_parameters, right.set_brought), (2.0, 3.0))
        half = self.judged("shared_lock", told("storage"))
        self.assertEqual((half.top, half.refined), (True, False))
        wrong = self.judged("python_in_loop", told("launch_bound"))
        self.assertEqual((wrong.top, wrong.refined, wrong.predicted), (False, False, None))

    def test_every_cause_of_the_docs_has_a_row(self) -> None:
        causes = re.findall(r"^`([a-z_]+)`\. ", (ROOT / "docs/causes.md").read_text(), re.MULTILINE)
        self.assertGreater(len(causes), 20)
        self.assertEqual([cause for cause in causes if cause not in said.WORDS], [])

    def test_a_cause_without_a_row_is_wrong(self) -> None:
        self.assertFalse(self.judged("slow_storage", told("brand_new")).top)

    def test_what_cannot_be_told_is_silent_where_a_branch_holds_much(self) -> None:
        self.assertTrue(self.judged("slow_storage", told(None), {"cured0": 4.0}).is_silent)
        self.assertFalse(self.judged("slow_storage", told(None), {"cured0": 1.1}).is_silent)
        self.assertFalse(self.judged("healthy_clipping", told(None)).is_silent)

    def test_health_is_health(self) -> None:
        self.assertTrue(self.judged("healthy_clipping", told("compute_bound", is_healthy=True)).top)
        self.assertFalse(self.judged("healthy_clipping", told("logging")).top)
        denied = self.judged("slow_storage", told("compute_bound", is_healthy=True))
        self.assertEqual((denied.top, denied.is_denied, denied.is_silent), (False, True, False))

    def test_a_diagnosis_that_failed_is_wrong(self) -> None:
        self.assertFalse(self.judged("healthy_clipping", {"error": "exit 1"}).top)

    def test_a_line_is_right_in_the_call_or_in_what_is_called(self) -> None:
        right = job("slow_storage").truth().diseases[0].lines
        for line in right:
            self.assertTrue(self.judged("slow_storage", told("storage", line=f"train.py:{line}")).is_line_right)
        self.assertFalse(self.judged("slow_storage", told("storage", where={"file": "train.py", "line": 1})).is_line_right)
        self.assertIsNone(self.judged("slow_storage", told("storage")).is_line_right)

    def test_lines_are_found_however_they_are_written(self) -> None:
        for member in ({"line": 31}, {"where": [{"file": "/tmp/train.py", "line": 31}]}, {"lines": ["train.py:31", "train.py:9"]},
                       {"evidence": [{"text": "train.py:31 `f()`: 78 %"}]}):
            self.assertEqual(said.line_of({"cause": "storage", **member}), 31, member)
        self.assertIsNone(said.line_of({"cause": "storage", "where": {"file": "torch/nn/linear.py", "line": 4}}))

    def test_both_causes_of_a_mixture_in_order(self) -> None:
        both = self.judged("evaluation_and_collate", told("storage", others=("logging",)))
        self.assertEqual((both.top, both.is_second_right), (False, False))
        first = self.judged("evaluation_and_collate", told("logging", others=("compute_bound", "cpu_preprocessing")))
        self.assertEqual((first.top, first.refined, first.is_second_right), (True, False, True))
        worth = {"cured0": 2.0, "cured1": 1.1, "cured01": 5.0}
        after = self.judged("evaluation_and_collate", told("cpu_preprocessing"), worth, cured(0))
        self.assertEqual((after.refined, after.brought, after.is_second_right), (True, 2.5, None))

    def test_the_tally_counts_and_the_page_shows_it(self) -> None:
        found = [self.judged("slow_storage", told("storage"), {"cured0": 4.0}),
                 self.judged("shared_lock", told("storage"), {"cured0": 9.0}),
                 self.judged("healthy_clipping", told("compute_bound", is_healthy=True))]
        figures = tally.counts(found)
        self.assertEqual((figures["top"], figures["refined"], figures["healthy"]), ([3, 3], [2, 3], [1, 1]))
        self.assertEqual((figures["worth"]["within"], figures["worth"]["of"]), (1, 2))
        page = tally.page("Title", {"gputune": "gputune 0", "commands": ["judge"]}, found, [], ("short_epochs-1",))
        self.assertIn("Not diagnosed: short_epochs-1.", page)
        self.assertIn("| refined cause right | 2 of 3 |", page)
        self.assertIn("| data: lock | 1 |", page.replace("|  |", "|"))


if __name__ == "__main__":
    unittest.main()
