"""Each judge of a check accepts right results and rejects wrong ones."""

from __future__ import annotations

import functools
import json
import pickle
import re
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from acceptance import hook, machine, meters, nvidia_smi, place, preflight, results, searches, sick, starts, suites
from acceptance.context import Context
from acceptance.process import Done
from acceptance.results import Report


class Reports(unittest.TestCase):
    def report(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return Report(Path(folder.name) / "x.json", "x")


class SickTest(Reports):
    #: What `gputune diagnose --json` printed of `sick_case.py healthy` on a busy machine without a GPU, shortened.
    DIAGNOSIS = json.loads((HERE / "data" / "diagnosis.json").read_text())

    def with_cause(self, name, is_healthy=False):
        return {**self.DIAGNOSIS, "bottleneck": {**self.DIAGNOSIS["bottleneck"], "cause": name}, "is_healthy": is_healthy}

    def test_the_bottleneck_counts_and_not_words_of_the_command(self):
        self.assertEqual(sick.causes(self.DIAGNOSIS), ("worker_imbalance", ["crowded_cores", "own_code"]))
        self.assertIn("healthy", self.DIAGNOSIS["job"])
        self.assertFalse(any(sick.is_right(name, self.DIAGNOSIS) for name in sick.CASES))
        for name, causes in sick.CASES.items():
            for cause in causes:
                self.assertTrue(sick.is_right(name, self.with_cause(cause, name == "healthy")))
                self.assertFalse(sick.is_right(name, self.with_cause(cause, name != "healthy")))
            self.assertFalse(sick.is_right(name, self.with_cause("logging", name == "healthy")))
        self.assertFalse(sick.is_right("tiny", {**self.DIAGNOSIS, "bottleneck": None}))
        self.assertEqual(sick.causes({}), ("", []))

    def test_the_causes_are_those_that_gputune_knows(self):
        known = "".join(path.read_text() for path in (HERE.parents[1] / "src/diagnosis/causes").glob("*.rs"))
        for cause in {cause for causes in sick.CASES.values() for cause in causes}:
            self.assertIn(f"    {cause} (", known)


class SuitesTest(Reports):
    def rows(self, code, printed):
        report = self.report()
        suites.judge_suite(report, "test_x", [Done(code, "", printed, 1.0)])
        return [row.outcome for row in report.rows]

    def test_a_failure_stops_no_other_test_and_keeps_its_stderr(self):
        ok, failure = "test_a (test_x.A.test_a) ... ok\n", "test_b (test_x.B.test_b) ... FAIL\nFAIL: test_b\nwrong by 3\n"
        both = threading.Barrier(2, timeout=120)

        def run(unit, left):
            if unit in ("test_x.A", "test_x.B"):
                # Each waits for the other, so this ends only if they run at the same time.
                both.wait()
            return Done(int(unit == "test_x.B"), "", failure if unit == "test_x.B" else ok, 1.0)

        report = self.report()
        with mock.patch.object(suites.os, "cpu_count", return_value=2):
            suites.run_all(report, ["test_x.A", "test_x.B", "test_y.C"], 120.0, run)
        rows = {row.check: row for row in report.rows}
        self.assertEqual({name: row.outcome for name, row in rows.items()}, {"x: test_x": "failed", "x: test_y": "passed"})
        self.assertEqual(rows["x: test_x"].seen, "1 failed, 1 passed: FAIL: test_b")
        self.assertIn("wrong by 3", rows["x: test_x"].stderr)
        # Without any time left, all is skipped.
        report = self.report()
        suites.run_all(report, ["test_x.A"], 0.0, run)
        self.assertEqual([row.outcome for row in report.rows], ["skipped"])

    def test_a_class_at_its_limit_is_ended_without_an_error_of_its_test(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "test_x.py"
            path.write_text("import time, unittest\nclass A(unittest.TestCase):\n  def test_a(self): time.sleep(60)\n")
            with mock.patch.object(suites, "PYTHON_TESTS", Path(folder)):
                done = suites.run_unit({}, "test_x.A", 1.5)
        self.assertIsNone(done.code)
        self.assertNotIn("ERROR", done.stderr)

    def test_failures_of_a_process_at_its_limit_have_their_reasons(self):
        lines = (
            "import os, signal, unittest",
            "class A(unittest.TestCase):",
            "  def test_a(self): self.assertEqual([1, 'memory'], [1])",
            "  def test_b(self): os.kill(os.getpid(), signal.SIGINT)",  # as at the limit
            "  def test_c(self): pass",
        )
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "test_x.py").write_text("\n".join(lines))
            with mock.patch.object(suites, "PYTHON_TESTS", Path(folder)):
                done = suites.run_unit({}, " ".join(f"test_x.A.test_{name}" for name in "abc"), 120.0)
        report = self.report()
        suites.judge_suite(report, "test_x", [Done(None, "", done.stderr, 1.0)])
        failed, rest = report.rows
        self.assertEqual(failed.outcome, "failed")
        self.assertTrue(failed.seen.startswith("1 failed, 0 passed: FAIL: test_a "), failed.seen)
        self.assertIn("[1, 'memory'] != [1]", failed.stderr)
        self.assertEqual(rest.seen, "skipped: no time: 0 had ended, and at the limit ran test_x.A.test_b")

    def test_processes_have_the_tests_that_classes_define_or_inherit(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "test_x.py"
            path.write_text("class Base:\n  def test_a(self): ...\nclass Child(Base): ...\nclass Helper:\n  def run(self): ...\n")
            self.assertEqual(suites.units_of(path), ["test_x.Base", "test_x.Child"])
            names = "abcdef"
            path.write_text("class Many:\n" + "".join(f"  def test_{name}(self): ...\n" for name in names))
            parts = [unit.split() for unit in suites.units_of(path)]
        self.assertEqual([len(part) for part in parts], [3, 3])
        self.assertEqual(sorted(sum(parts, [])), [f"test_x.Many.test_{name}" for name in names])

    def test_what_had_no_time_is_skipped_and_no_pass(self):
        ok = "test_a (test_x.A.test_a) ... ok\n"
        self.assertEqual(self.rows(0, ok), ["passed"])
        self.assertEqual(self.rows(None, ok), ["passed", "skipped"])
        self.assertEqual(self.rows(None, ""), ["skipped"])
        self.assertEqual(self.rows(1, ok + "test_b (test_x.A.test_b) ... FAIL\nFAIL: test_b\n"), ["failed"])
        self.assertEqual(self.rows(None, ok + "test_b (test_x.A.test_b) ... ERROR\n"), ["failed", "skipped"])
        self.assertEqual(self.rows(1, "Traceback\nImportError: x\n"), ["failed"])
        self.assertEqual(self.rows(0, "setUpModule (test_x) ... skipped 'no device'\n"), ["skipped"])

    def test_failures_of_a_class_at_its_limit_have_their_names(self):
        # unittest names failures at its end, which this class did not reach.
        printed = "test_a (test_x.A.test_a) ... ok\ntest_b (test_x.A.test_b) ... ok\n"
        printed += "test_c (test_x.A.test_c)\nIn words. ... FAIL\ntest_d (test_x.A.test_d) ... \n"
        printed += "  test_d (test_x.A.test_d) (load=9) ... ERROR\ntest_e (test_x.A.test_e) ... "
        report = self.report()
        suites.judge_suite(report, "test_x", [Done(None, "", printed, 1.0)])
        seen = "2 failed, 2 passed: FAIL: test_c (was ended at its limit); ERROR: test_d (was ended at its limit)"
        self.assertEqual((report.rows[0].outcome, report.rows[0].seen), ("failed", seen))

    def test_the_suite_for_a_device_comes_first_and_trains_there(self):
        self.assertEqual(suites.SUITES[0], "test_hook_device")
        more = {"test_hook_live", "test_zygote", "test_hook_flops", "test_hook_trace", "test_hook_experiments"}
        self.assertLessEqual(more, set(suites.SUITES))
        self.assertTrue(all((suites.PYTHON_TESTS / f"{suite}.py").exists() for suite in suites.SUITES))
        self.assertIn("GPUTUNE_TEST_DEVICE", (suites.PYTHON_TESTS / "harness.py").read_text())


class StartsTest(Reports):
    def trials(self, mark, rate, memory, **more):
        made = {"config": {"batch_size": 8}, "outcome": "measured", "throughput": {"value": rate}, "peak_memory_bytes": memory}
        return [{"trial": 1, **made, **({mark: True} if mark else {}), **more}]

    def test_trials_are_told_apart_by_their_start_and_process(self):
        trials = self.trials("", 50.0, 5) + self.trials("is_live", 100.0, 7, trial=2)
        trials += self.trials("is_live", 99.0, 9, trial=3, round={"number": 1, "process": 1, "slices": [98.0, 100.0]})
        trials += self.trials("is_forked", 70.0, 6, trial=4) + self.trials("", 1.0, 1, trial=5, outcome="crashed")
        trials += trials[:1]  # a journal may repeat a trial
        found = [(each["start"], each["process"], each["rates"], each["memory"]) for each in starts.measured(trials, "live")]
        first = [("fresh", "live 1", [50.0], 5), ("live", "live 2", [100.0], 7)]
        self.assertEqual(found, [*first, ("live", "live 1", [98.0, 100.0], None), ("warm", "live 4", [70.0], 6)])

    def search(self, start, mark, dry=False):
        """The setting in the spec of a search, and the outcomes of its rows."""
        report = self.report()
        with tempfile.TemporaryDirectory() as folder:
            context = Context("gputune", folder, folder, 30.0, dry=dry)
            with mock.patch.object(Context, "gputune", lambda *_, **__: Done(0, "", "", 1.0)), \
                    mock.patch.object(starts.tables, "read_journal", lambda _: self.trials(mark, 100.0, 7)):  # fmt: skip
                starts.search(context, report, start)
            text = (context.folder(f"starts/{start}") / "spec.toml").read_text()
        (setting,) = re.findall(r'^start = "(\w+)"', text, re.MULTILINE)
        return setting, [row.outcome for row in report.rows[:2]]

    def test_the_default_has_to_be_live_on_a_gpu(self):
        self.assertEqual(self.search("live", "is_live"), ("auto", ["passed", "passed"]))
        self.assertEqual(self.search("live", ""), ("auto", ["passed", "failed"]))
        self.assertEqual(self.search("warm", "is_forked"), ("warm", ["passed", "passed"]))
        self.assertEqual(self.search("fresh", ""), ("fresh", ["passed", "passed"]))
        self.assertEqual(self.search("live", "", dry=True), ("live", ["passed", "skipped"]))

    def compared(self, rate, memory, dry=False, fresh=(100.0, 101.0)):
        """The rows of a live process of this rate beside fresh processes of these rates."""
        report = self.report()
        trials = [("live", rate, memory), *(("fresh", each, 8e9) for each in fresh)]
        everything = [
            {"config": "a", "start": start, "process": number, "rate": value, "rates": [value], "memory": peak}
            for number, (start, value, peak) in enumerate(trials)
        ]
        with tempfile.TemporaryDirectory() as folder:
            starts.compare(Context("gputune", folder, folder, 30.0, dry=dry), report, "live", everything)
        return report.rows

    def outcomes(self, *arguments, **options):
        return [row.outcome for row in self.compared(*arguments, **options)]

    def test_rates_and_memory_are_those_of_fresh_processes(self):
        self.assertEqual(self.outcomes(104.0, 8.1e9), ["passed", "passed"])
        self.assertEqual(self.outcomes(94.0, 8.1e9), ["failed", "passed"])
        self.assertEqual(self.outcomes(100.0, 9e9), ["passed", "failed"])
        # A dry run says nothing about a GPU.
        self.assertEqual(self.outcomes(50.0, 9e9, dry=True), ["told", "told"])
        self.assertEqual(self.outcomes(1.0, 1.0, fresh=()), ["skipped", "skipped"])

    def test_rates_are_compared_only_with_fresh_processes_that_agree(self):
        for fresh, reason in (((100.0, 90.0), "in 2 fresh processes are 10.5% apart"), ((100.0,), "by 1 fresh process")):
            rate, memory = self.compared(50.0, 8e9, fresh=fresh)
            self.assertEqual((rate.outcome, memory.outcome), ("skipped", "passed"))
            self.assertIn(reason, rate.seen)

    def test_the_rates_of_the_first_h100_are_too_noisy_to_compare(self):
        """One warm probe had -7.2% (gpu/results/h100)."""
        tf32, bf16 = {"precision": "tf32"}, {"precision": "bf16"}
        live = self.trials("", 1049.3, 7, config=tf32, is_unstable=True)
        live[0]["throughput"].update(low=810.7, high=1486.2)
        warm = self.trials("", 839.1, 7, config=tf32) + self.trials("is_forked", 681.1, 7, trial=2, config=bf16)
        warm += self.trials("is_forked", 796.0, 7, trial=3, config=tf32, round={"process": 3, "slices": [833.3, 761.5]})
        fresh = self.trials("", 805.1, 7, config=tf32) + self.trials("", 734.2, 7, trial=2, config=bf16)
        searches = {"live": live, "warm": warm, "fresh": fresh}
        everything = [each for name, trials in searches.items() for each in starts.measured(trials, name)]
        report = self.report()
        with tempfile.TemporaryDirectory() as folder:
            starts.compare(Context("gputune", folder, folder, 30.0), report, "warm", everything)
        self.assertEqual([row.outcome for row in report.rows], ["skipped", "passed"])
        self.assertIn("in 3 fresh processes are", report.rows[0].seen)
        self.assertIn("by 1 fresh process", report.rows[0].seen)


class MissingTest(Reports):
    """A meter that a sandbox hides is absent; on any other machine that is a failure."""

    def outcome(self, sandbox):
        report, probe = self.report(), {"gpus": [{"readings": {}, "absent": ["power: not supported by this device"]}]}
        witnesses = dict.fromkeys(nvidia_smi.FIELDS[1:])
        with mock.patch.object(machine, "sandbox", return_value=sandbox):
            meters.compare(report, "busy", probe, {**witnesses, "power.draw": 300.0}, 0.0)
        row = next(row for row in report.rows if "power" in row.check)
        self.assertIn("not supported", row.seen)
        return row.outcome

    def test_a_missing_meter_is_absent_in_a_sandbox_only(self):
        self.assertEqual((self.outcome("gVisor"), self.outcome("")), ("absent", "failed"))
        row = results.Row("x", "1", "absent", results.ABSENT)
        self.assertIn("absent", results.table([row]))
        self.assertEqual(results.totals([row])["failed"], 0)
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(machine, "output", return_value=""):
            version = Path(folder) / "version"
            version.write_text("Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016")
            self.assertEqual(machine.sandbox(version), "gVisor")
            version.write_text("Linux version 6.1.0 #1 SMP")
            self.assertEqual(machine.sandbox(version), "")


class HookTest(Reports):
    """With the names that kernels have in PyTorch 2 on GPUs of compute capability 8.0 and 9.0."""

    SGEMM = "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>"
    SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 6, true, false>"
    FLASH = "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4>>"
    CUDNN = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3_64x64x64"
    EFFICIENT = "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel)"
    PLAIN = {"kernels": [SGEMM, SOFTMAX], "steps": 9, "channels_last": False, "conversions": 4}

    def right(self, case, seen, other=PLAIN):
        judge = next(each.judge for each in hook.CASES if each.name == case)
        return judge(seen, other) is None

    def test_another_kernel_is_not_yet_one_of_the_wanted_format(self):
        for case, kernel in [
            ("bf16", "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64"),
            ("bf16", "nvjet_tst_64x8_64x16_1x2_h_bz_TNT"),
            ("fp16", "ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_stages_64x5_tn"),
            ("cpu-first", "void at::native::elementwise_kernel<c10::BFloat16>"),
        ]:
            self.assertTrue(self.right(case, {"kernels": [self.SGEMM, kernel]}), kernel)
            self.assertFalse(self.right(case, {"kernels": [kernel]}, {"kernels": [kernel]}))
            self.assertFalse(self.right(case, {"kernels": [self.SGEMM, "void at::native::a_new_kernel<float>"]}))

    def test_both_switches_of_tf32_count(self):
        kernel = {"kernels": ["sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32"], "losses": [1.0]}
        switches = {name: {"matmul": name in "both matmul", "cudnn": name in "both cudnn"} for name in ("both", "matmul", "no")}
        self.assertTrue(self.right("tf32", {**kernel, "switches": switches["both"]}))
        self.assertFalse(self.right("tf32", {**kernel, "switches": switches["matmul"]}))
        self.assertFalse(self.right("tf32", kernel))
        self.assertTrue(self.right("fp32", {**kernel, "switches": switches["no"]}, kernel))
        self.assertFalse(self.right("fp32", {**kernel, "switches": switches["matmul"]}, kernel))

    def test_each_attention_is_told_from_the_others(self):
        families = {"flash": self.FLASH, "cudnn": self.CUDNN, "efficient": self.EFFICIENT}
        as_it_is = {"kernels": [self.FLASH, self.SOFTMAX]}
        for name in families:
            for other, kernel in families.items():
                seen = {"kernels": [kernel, self.SOFTMAX]}
                self.assertEqual(self.right(f"sdpa-{name}", seen, as_it_is), name == other, (name, other))
                self.assertFalse(self.right("sdpa-math", seen, as_it_is))
        self.assertTrue(self.right("sdpa-math", self.PLAIN, as_it_is))
        self.assertFalse(self.right("sdpa-math", self.PLAIN, self.PLAIN))
        self.assertFalse(self.right("sdpa-flash", self.PLAIN, as_it_is))

    def test_layouts_by_the_weights_and_fewer_conversions(self):
        right = {"channels_last": True, "conversions": 1}
        self.assertTrue(self.right("channels-last", right))
        for wrong in ({"channels_last": False}, {"conversions": 4}, {"conversions": 9}):
            self.assertFalse(self.right("channels-last", {**right, **wrong}), wrong)
        self.assertFalse(self.right("channels-last", right, {**self.PLAIN, "channels_last": True}))

    def test_losses_are_those_that_the_hook_reported(self):
        losses = [2.30, 2.41, 2.27, 2.36, 2.22, 2.33, 2.28]
        self.assertTrue(self.right("graphs", {"reported": [1.001 * loss for loss in losses]}, {"reported": losses}))
        for wrong in (losses[1:], losses[:3], [], [float("nan")] * 7):
            self.assertFalse(self.right("graphs", {"reported": wrong}, {"reported": losses}), wrong)
        self.assertFalse(self.right("graphs", {"losses": losses}, {"losses": losses}))
        self.assertFalse(self.right("slow-steps", {"steps": 20}))

    def test_parts_of_memory_and_the_blocks_at_the_lack_of_it(self):
        facts = {"memory.fragmentation": 0.2, "memory.reserved": 4 << 30}
        for own, outcome in ((5 << 30, "passed"), (4 << 30, "failed"), (9 << 30, "failed")):
            report = self.report()
            gpus = [{"readings": {"memory_own": {"value": own, "source": "nvml_processes"}}}]
            hook.judge_memory(Context("gputune", ".", ".", 30.0), report, {"facts": facts, "gpus": gpus})
            self.assertEqual([row.outcome for row in report.rows], [outcome], own)
        for content, outcome in (({"segments": [{}]}, "passed"), ({"segments": []}, "failed"), (None, "failed")):
            report = self.report()
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "0001.memory.pickle")
                path.write_bytes(b"" if content is None else pickle.dumps(content))
                hook.judge_snapshot(report, {"memory_snapshot": str(path)})
            self.assertEqual([row.outcome for row in report.rows], [outcome], content)

    def test_recorded_steps_have_kernels_and_a_file(self):
        trace = {"kind": "kernels", "idle_share": 0.2, "estimated_sm_efficiency": 0.5, "file": "trace.json.gz"}
        for change, outcome in (({}, "passed"), ({"kind": "operators"}, "failed"), ({"file": "none"}, "failed"), (None, "skipped")):
            report = self.report()
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "trace.json.gz").write_bytes(b"x")
                best = {} if change is None else {"trace": {**trace, **change}}
                Path(folder, "best.json").write_text(json.dumps(best))
                searches.judge_trace(report, Path(folder))
            self.assertEqual([row.outcome for row in report.rows], [outcome], change)

    def rows(self, name, seen, other, dry=False, card="", outcome="measured", config=None):
        case, report = next(case for case in hook.CASES if case.name == name), self.report()
        with tempfile.TemporaryDirectory() as folder:
            context = Context("gputune", folder, folder, 30.0, dry=dry, card=card)
            (context.folder(f"hook/{case.against}") / "witness.json").write_text(json.dumps(other))

            def probe(self, spec, out, **_):
                (out.parent / "witness.json").write_text(json.dumps(seen))
                told = {"outcome": outcome, "config": config or {"setting": case.setting}, "first_losses": []}
                return Done(0, "", "", 1.0), told

            with mock.patch.object(Context, "probe", probe):
                hook.judge_case(context, report, case)
            text = (context.folder(f"hook/{name}") / "spec.toml").read_text()
        self.assertIn(f"[baseline]\nsetting = {json.dumps(case.setting)}\n", text)
        self.assertIn('writes = "allow"', text)
        return [(row.check.split(": ")[1], row.outcome) for row in report.rows]

    def test_a_case_passes_with_its_setting_and_its_witness_only(self):
        seen, none = {"steps": 9, "kernels": ["FusedAdamMathFunctor"]}, {"steps": 9, "kernels": []}
        outcome, setting = ("outcome", "passed"), ("setting", "passed")
        self.assertEqual(self.rows("fused", seen, self.PLAIN), [outcome, setting, ("witness", "passed")])
        self.assertEqual(self.rows("fused", self.PLAIN, self.PLAIN), [outcome, setting, ("witness", "failed")])
        self.assertEqual(self.rows("fused", {}, self.PLAIN), [outcome, setting, ("witness", "failed")])
        self.assertEqual(self.rows("fused", seen, self.PLAIN, outcome="crashed"), [("outcome", "failed")])
        as_it_is = self.rows("fused", seen, self.PLAIN, config={"setting": "as it is"})
        self.assertEqual(as_it_is[1], ("setting", "failed"))
        # Without any kernel, there is no evidence about the hook.
        self.assertEqual(self.rows("fused", none, none), [outcome, setting, ("witness", "skipped")])

    def test_a_dry_run_judges_what_needs_no_kernels(self):
        twice, once = {"steps": 9, "forwards": 18}, {"steps": 9, "forwards": 9}
        self.assertEqual(self.rows("checkpoint", twice, once, True, "card")[-1], ("witness", "passed"))
        self.assertEqual(self.rows("checkpoint", once, once, True, "card")[-1], ("witness", "failed"))
        self.assertEqual(self.rows("checkpoint", once, once, True)[-1], ("witness", "skipped"))
        self.assertEqual(self.rows("fused", once, once, True, "card")[-1], ("witness", "skipped"))
        self.assertEqual(self.rows("checkpoint", once, once, True, "card", "crashed"), [("outcome", "failed")])


class CostTest(Reports):
    def outcome(self, pairs, check):
        report = self.report()
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(hook, "rounds", lambda *_: iter(pairs)):
            context = Context("gputune", folder, folder, 30.0)
            check(context, report)
        return report.rows[0].outcome

    def test_one_round_proves_nothing(self):
        cost = functools.partial(hook.cost, goes_on=False)
        self.assertEqual(self.outcome([(1.0, 1.0)], cost), "skipped")
        self.assertEqual(self.outcome([(1.0, 1.001), (1.0, 1.002), (1.0, 1.0)], cost), "passed")
        self.assertEqual(self.outcome([(1.0, 1.1), (1.0, 1.101), (1.0, 1.102)], cost), "failed")
        self.assertEqual(self.outcome([(1.0, 1.1), (1.0, 0.9), (1.0, 1.0)], cost), "skipped")

    def test_rounds_of_two_checks_count_together(self):
        with tempfile.TemporaryDirectory() as folder:
            context, report = Context("gputune", folder, folder, 30.0), self.report()
            for goes_on in (False, True):
                with mock.patch.object(hook, "rounds", lambda *_: iter([(1.0, 1.001), (1.0, 1.002)])):
                    hook.cost(context, report, goes_on)
        self.assertEqual([row.outcome for row in report.rows], ["skipped", "passed"])

    def test_small_steps_cost_half_a_percent_and_the_noise(self):
        def judge(_, report):
            hook.judge_small_steps(report, list(hook.rounds()))

        for longer, outcome in [
            ((1.003, 1.004, 1.005), "passed"),
            ((1.002, 1.012, 1.007), "passed"),  # half a percent more, and the noise
            ((1.010, 1.011, 1.012), "failed"),
            ((1.200, 1.201, 1.202), "failed"),  # a fifth of a step
            ((1.200, 1.250, 1.300), "failed"),  # however noisy
            ((1.500, 0.510, 1.520), "skipped"),
        ]:
            self.assertEqual(self.outcome([(1e-3, 1e-3 * share) for share in longer], judge), outcome, longer)
        self.assertEqual(self.outcome([(1e-3, 1e-3)], judge), "skipped")
        self.assertGreater(meters.interval([0.0, 1.0, 2.0])[1], 2)


class PreflightTest(Reports):
    def test_facts_are_told_and_do_not_pass(self):
        report = self.report()
        with tempfile.TemporaryDirectory() as folder:
            preflight.gpm(Context("gputune", folder, folder, 20.0), report)
        preflight.processes(report)
        self.assertLessEqual({row.outcome for row in report.rows}, {results.TOLD, results.SKIPPED})
        self.assertIn(results.TOLD, {row.outcome for row in report.rows})
        self.assertEqual(results.totals(report.rows)[results.PASSED], 0)
        self.assertIn("told", results.table(report.rows))


class PlaceTest(unittest.TestCase):
    def test_a_folder_that_others_could_swap_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            shared = Path(folder) / "shared"
            shared.mkdir()
            for mode, is_right in ((0o700, True), (0o777, False), (0o770, False), (0o1777, True), (0o755, True)):
                shared.chmod(mode)
                if is_right:
                    self.assertEqual(place.own_folder(f"{shared}/a/state"), (shared / "a" / "state").resolve())
                else:
                    with self.assertRaisesRegex(place.NotOwn, f"can be swapped, as .*shared can be written .*{mode:o}"):
                        place.own_folder(f"{shared}/a/state")
            (Path(folder) / "link").symlink_to(shared)
            shared.chmod(0o777)
            with self.assertRaisesRegex(place.NotOwn, "can be swapped"):
                place.own_folder(f"{folder}/link/state")


if __name__ == "__main__":
    unittest.main()
