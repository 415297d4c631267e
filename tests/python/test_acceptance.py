"""Tests of the parts of gpu/acceptance.sh that need no GPU: tables, verdicts, the plan, archives and processes."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import random
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
import zlib
from pathlib import Path
from unittest import mock

GPU = Path(__file__).resolve().parents[2] / "gpu"
sys.path.insert(0, str(GPU))
sys.path.insert(0, str(GPU / "scripts"))

from acceptance import __main__ as acceptance
from acceptance import archive, device, example, holding, hook, machine, memory, meters, nvidia_smi, place, plan, process
from acceptance import results
from acceptance import searches, suites, tables
from acceptance.checks import CHECKS
from acceptance.context import Context

NAMES = ["batch_size", "workers", "precision"]


def trial(outcome, batch_size, value=None, **more):
    made = {
        "trial": 1,
        "config": {"batch_size": batch_size, "precision": "bf16"},
        "outcome": outcome,
        "elapsed_s": 2.0,
        **more,
    }
    if value is not None:
        made["throughput"] = {"value": value, "low": value - 1.96, "high": value + 1.96}
    return made


class TablesTest(unittest.TestCase):
    def test_one_row_for_each_config_with_repeats_and_failures(self):
        gpus = [{"uuid": "GPU-1", "readings": {"sm_active": {"value": 0.5, "source": "gpm"}}}]
        trials = [
            trial("measured", 8, 100.0, gpus=gpus, phase_seconds={"data_wait": 0.25}, peak_memory_bytes=7),
            trial("measured", 8, 110.0),
            trial("out_of_memory", 512),
            trial("measured", 2, 10.0),
            trial("crashed", 4),
        ]
        made = tables.rows(trials, NAMES)
        self.assertEqual([row["status"] for row in made], ["ok", "oom_fail", "ok", "runtime_fail"])
        first = made[0]
        self.assertEqual((first["batch_size"], first["workers"], first["value"], first["n_rep"]), ("8", "", 105.0, 2))
        self.assertEqual((first["x_sm_activity"], first["x_data_wait_s"], first["x_peak_memory_bytes"]), (0.5, 0.25, 7))
        self.assertAlmostEqual(made[2]["value_std"], 1.0)
        self.assertEqual(tables.value_of(made, {"batch_size": 8, "precision": "bf16"}, NAMES), 105.0)
        self.assertIsNone(tables.value_of(made, {"batch_size": 512, "precision": "bf16"}, NAMES))

        told = tables.manifest(made, NAMES, {"batch_size": "ordinal-log2"}, "a GPU", "rate")
        self.assertEqual((told["ok"], told["failing"], told["best"], told["within10"]), (2, 2, 105.0, 1))
        self.assertEqual(told["fail_kinds"], {"oom_fail": 1, "runtime_fail": 1})
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "table.csv"
            tables.write_table(path, made, NAMES)
            with path.open() as file:
                read = list(csv.DictReader(file))
        self.assertEqual(list(read[0])[:5], [*NAMES, "status", "value"])
        self.assertEqual(len(read), 4)

    def test_a_journal_that_was_cut_off_is_read_up_to_there(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "journal.jsonl"
            path.write_text('{"format":1}\n' + json.dumps(trial("measured", 8, 1.0)) + '\n{"trial":2,"conf')
            self.assertEqual(len(tables.read_journal(path)), 1)
            self.assertEqual(tables.read_journal(Path(folder) / "none"), [])


class ReadingsTest(unittest.TestCase):
    def test_nvidia_smi_samples(self):
        text = (
            "2026/11/21 10:00:00.100, 50, 1024, 300.5, 1980, 3201\n"
            "2026/11/21 10:00:00.300, [N/A], 1026, 301.5, 1980, 3201\n"
            "2026/11/21 10:00"
        )
        samples = nvidia_smi.read_samples(text)
        at = samples[0]["at"]
        self.assertEqual(len(samples), 2)
        self.assertEqual(nvidia_smi.mean(samples, "memory.used", at - 1, at + 1), 1025)
        self.assertEqual(nvidia_smi.mean(samples, "utilization.gpu", at - 1, at + 1), 50)
        self.assertIsNone(nvidia_smi.mean(samples, "power.draw", at + 1, at + 2))

    def test_noise_is_no_proof_that_gputune_costs_nothing(self):
        for differences, outcome, words in [
            ([0.001, -0.001, 0.001, -0.001, 0.001, -0.001], "passed", "+0.00 ± 0.1"),
            ([0.004, 0.0045, 0.005, 0.0055, 0.006], "failed", "+0.50"),
            ([-0.02, -0.021, -0.022, -0.02], "failed", "-2.0"),
            ([0.10, -0.04, 0.03, 0.06, -0.02], "skipped", "skipped: too noisy (+2.60 ±"),
            ([0.10, 0.11, 0.09, 0.12], "failed", "+10.50"),
            ([0.0, 0.0], "failed", "2 rounds"),
        ]:
            seen, found = meters.verdict(differences)
            self.assertEqual((found, seen[: len(words)]), (outcome, words))
        meters.verdict([0.001, 0.002] * (meters.MOST_ROUNDS // 2))

    def test_ticks_count_by_their_length(self):
        self.assertEqual(meters.weighted_mean([(1, 0.0), (3, 100.0), (5, None)]), 75)
        self.assertIsNone(meters.weighted_mean([(1, None)]))

    def test_values_are_found_wherever_they_stand(self):
        content = {"gpus": [{"uuid": "GPU-1", "name": "x"}, {"uuid": "MIG-2"}]}
        self.assertEqual(list(device.values(content, "uuid")), ["GPU-1", "MIG-2"])
        self.assertEqual(len(list(device.objects(content))), 3)


class RunningTest(unittest.TestCase):
    def test_a_child_and_its_own_children_end_at_the_limit(self):
        script = (
            "import subprocess, sys, time; subprocess.Popen(['sleep', '61'], start_new_session=True); time.sleep(60)"
        )
        begun = time.monotonic()
        done = process.run([sys.executable, "-c", script], 1.0)
        self.assertIsNone(done.code)
        self.assertLess(time.monotonic() - begun, 55)

    def test_descendants_in_other_sessions_are_killed(self):
        script = """if True:
            import subprocess, time
            print(subprocess.Popen(["sleep", "61"], start_new_session=True).pid, flush=True)
            time.sleep(60)
        """
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "pid"
            child = process.start([sys.executable, "-c", script], stdout=output)
            while not output.read_text().endswith("\n"):
                time.sleep(0.05)
            grandchild = int(output.read_text())
            self.assertTrue(memory.alive(grandchild))
            process.end(child)
            end = time.monotonic() + 60
            while memory.alive(grandchild) and time.monotonic() < end:
                time.sleep(0.05)
            self.assertFalse(memory.alive(grandchild))

    def test_names_are_checked_and_reasons_are_given(self):
        self.assertEqual(len({check.name for check in CHECKS}), len(CHECKS))
        self.assertEqual([check.name for check in acceptance.chosen(["oom,gpm", "ceilings"])], ["ceilings", "oom", "gpm"])
        with self.assertRaises(ValueError):
            acceptance.chosen(["nonsense"])
        check = next(check for check in CHECKS if check.name == "meters")
        gpu = {"gpu": "x", "torch": "2", "torch_sees_gpu": True}
        self.assertEqual(acceptance.why_not(check, {}, False, 1e9), "no GPU")
        self.assertEqual(acceptance.why_not(check, {"gpu": "x"}, False, 1e9), "no PyTorch")
        self.assertIn("s are left", acceptance.why_not(check, gpu, False, 1))
        needy, dry = CHECKS[-1], next(check for check in CHECKS if check.runs_dry and not check.needs_torch)
        self.assertIn("dry run", acceptance.why_not(needy, {}, False, 1e9, dry=True))
        self.assertIsNone(acceptance.why_not(dry, {}, False, 1e9, dry=True))
        self.assertIsNone(acceptance.why_not(check, gpu, False, 1e9))

    def test_rows_of_a_check_that_was_cut_short_are_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            report = results.Report(Path(folder) / "x.json", "x")
            report.judge("one", "1", "1", True)
            report.skip("two", "2", "no time")
            report.number(seconds=3)
            rows, numbers = results.read_report(report.path)
        self.assertEqual(([row.outcome for row in rows], numbers), (["passed", "skipped"], {"seconds": 3}))
        self.assertIn("skipped: no time", results.table(rows))
        self.assertEqual(results.read_report(Path("/nowhere")), ([], {}))


class PlanTest(unittest.TestCase):
    def test_three_calls_fit_into_ten_minutes_each(self):
        self.assertEqual(len(plan.CALLS), 3)
        for number, call in enumerate(plan.CALLS, start=1):
            self.assertLessEqual(call.expected_seconds, plan.CALL_SECONDS, number)
            self.assertIn(f"call {number}: {call.about}; expected {plan.clock(call.expected_seconds)}", plan.text())
            for check in call.checks:
                self.assertIn(f"{check.name} ", plan.text())
                self.assertGreaterEqual(check.limit_seconds, check.expected, check.name)
        self.assertEqual([check for call in plan.CALLS for check in call.checks], CHECKS)

    def test_the_first_call_settles_most_in_this_order(self):
        names = [check.name for check in plan.CALLS[0].checks]
        first = ["preflight", "facts-nvml", "facts-cuda", "meters", "ceilings", "ceilings-torch", "rust-example", "oom"]
        first += ["sigkill", "sigkill-gputune", "search-live", "search-warm", "search-fresh", "hook-plain"]
        self.assertEqual(names[: len(first)], first)
        self.assertTrue(all(name.startswith("hook-") for name in names[len(first) :]))
        self.assertEqual(names[-1], "hook-memory")

    def test_a_check_of_the_first_call_takes_thirty_seconds_at_most(self):
        many = ("search-live", "search-warm", "search-fresh")
        self.assertTrue(all(check.limit_seconds <= 30 for check in plan.CALLS[0].checks if check.name not in many))
        whole = ("gpm", "observer", "hook-tests")
        self.assertTrue(all(check.limit_seconds <= 30 for check in plan.CALLS[1].checks if check.name not in whole))

    def test_each_setting_that_the_hook_can_apply_has_a_witness(self):
        self.assertTrue(all(case.judge for case in hook.CASES if case.target))
        applied = {case.target for case in hook.CASES}
        self.assertLessEqual({"torch.precision", "torch.fused_optimizer", "torch.channels_last", "torch.sdpa"}, applied)
        plain = {"kernels": ["ampere_sgemm"], "losses": [2.0], "steps": 10, "forwards": 10}
        for judge, right, wrong in [
            (hook.named("fused"), {"kernels": ["FusedAdam"]}, plain),
            (hook.other_kernels, {"kernels": ["cutlass_bf16"]}, plain),
            (hook.twice, {"steps": 10, "forwards": 20}, plain),
            (hook.same_losses, {"losses": [2.01]}, {"losses": [1.0]}),
            (hook.epochs, {"epochs": 2, "evaluations": 1}, {"epochs": 1}),
            (hook.overlap, {"step_seconds": 0.71}, {"step_seconds": 1.0}),
        ]:
            self.assertIsNone(judge(right, plain))
            self.assertTrue(judge(wrong, plain))


class PlaceTest(unittest.TestCase):
    def test_state_is_in_a_folder_of_the_users_own(self):
        with tempfile.TemporaryDirectory() as folder:
            own = place.own_folder(f"{folder}/a/state")
            self.assertEqual(own.stat().st_mode & 0o777, 0o700)
            self.assertEqual(place.own_folder(str(own)), own)
            own.chmod(0o777)
            with self.assertRaisesRegex(place.NotOwn, "can be written by others"):
                place.own_folder(str(own))
            (Path(folder) / "link").symlink_to(folder)
            with self.assertRaisesRegex(place.NotOwn, "is a link"):
                place.own_folder(f"{folder}/link")
            with mock.patch.object(place.os, "geteuid", return_value=4242):
                own.chmod(0o700)
                with self.assertRaisesRegex(place.NotOwn, "belongs to user"):
                    place.own_folder(str(own))
            with mock.patch.dict("os.environ", {"XDG_STATE_HOME": folder}):
                self.assertEqual(place.default(), Path(folder) / "gputune" / "acceptance")

    def test_what_a_check_found_is_beside_the_results_until_it_is_in_them(self):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder)
            report = results.Report(out / results.RUNNING, "x")
            report.judge("one", "1", "1", True)
            content = json.loads((out / results.RUNNING).read_text())
            self.assertEqual((content["check"], len(content["rows"])), ("x", 1))
            acceptance.write(out, {"checks": {}}, report.rows)
            self.assertEqual(sorted(path.name for path in out.iterdir()), ["results.json", "table.txt"])


class PackTest(unittest.TestCase):
    def names(self, out):
        with tarfile.open(out / archive.FILE) as packed:
            return {member.name: member.size for member in packed}

    def test_ends_of_logs_are_packed_without_caches(self):
        with tempfile.TemporaryDirectory() as folder:
            state, out = Path(folder) / "state", Path(folder) / "out"
            for name in ("search/journal.jsonl", "search/logs/1.log", "cache/x/spec.toml", "search/weights.bin"):
                path = state / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("x" * 30_000)
            out.mkdir()
            archive.pack(state, out)
            self.assertEqual(self.names(out), {"search/journal.jsonl": 30_000, "search/logs/1.log": archive.LOG_BYTES})
            self.assertEqual([path.name for path in out.iterdir()], [archive.FILE])

    def test_results_are_packed_after_each_check_that_fails_and_at_the_end(self):
        found = iter(["passed", "failed", "passed"])
        packed = []

        def run_check(check, context):
            return acceptance.Entry([results.Row(check.name, "", "", next(found))], {}, 0.1)

        with tempfile.TemporaryDirectory() as folder:
            arguments = acceptance.parser().parse_args([sys.executable, "--out", f"{folder}/out", "--state", f"{folder}/state"])
            rows = lambda: len(json.loads((Path(folder) / "out" / results.FILE).read_text())["checks"])
            with mock.patch.object(acceptance, "run_check", run_check), mock.patch.object(acceptance, "why_not", return_value=None), \
                    mock.patch.object(machine, "facts", return_value={"gputune": "x"}), \
                    mock.patch.object(acceptance.archive, "pack", lambda *_: packed.append(rows())), \
                    contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):  # fmt: skip
                code = acceptance.run_all(arguments, CHECKS[:3])
        self.assertEqual((code, packed), (1, [2, 3]))

    def test_a_failure_has_two_kilobytes_of_stderr(self):
        with tempfile.TemporaryDirectory() as folder:
            report = results.Report(Path(folder) / "x.json", "x")
            process.run([sys.executable, "-c", "import sys; sys.stderr.write('begin' + 'ä' * 3000 + 'end')"], 20)
            report.judge("one", "1", "2", False)
            report.judge("two", "1", "1", True)
            rows, _ = results.read_report(report.path)
        self.assertTrue(rows[0].stderr.endswith("end") and "begin" not in rows[0].stderr)
        self.assertTrue(2000 < len(rows[0].stderr.encode()) <= results.STDERR_BYTES)
        self.assertEqual(rows[1].stderr, "")


class ArchiveTest(unittest.TestCase):
    def test_the_archive_has_all_that_a_call_needs_and_is_below_the_limit(self):
        with tempfile.TemporaryDirectory() as folder:
            built, place = Path(folder) / "built", Path(folder) / "place"
            for name in ("built/examples", "place"):
                (Path(folder) / name).mkdir(parents=True)
            for name in ("gputune", "examples/cuda_step"):
                (built / name).write_text("#!/bin/sh\necho gputune 0\n")
                (built / name).chmod(0o755)
            command = [str(GPU / "pack.sh"), "--built", str(built), f"{folder}/packed.tar.xz"]
            done = process.run(command, 60)
            self.assertEqual(done.code, 0, done.stderr)
            self.assertIn("limit 64 MiB", done.stdout)
            with tarfile.open(f"{folder}/packed.tar.xz") as packed:
                packed.extractall(place, **({"filter": "data"} if sys.version_info >= (3, 12) else {}))
            context = Context(str(place / "bin" / "gputune"), folder, folder, 20.0)
            self.assertEqual(example.find(Path(context.binary)), place / "bin" / "cuda_step")
            # `--plan` imports all checks, and needs neither a driver nor PyTorch.
            shown = process.run([str(place / "gpu" / "acceptance.sh"), "--plan"], 60, env={"PYTHON": sys.executable})
            self.assertIn("call 1: ", shown.stdout)
            for suite in suites.SUITES:
                self.assertTrue((place / "tests" / "python" / f"{suite}.py").exists(), suite)
            (built / "gputune").write_bytes(random.Random(0).randbytes(2 << 20))
            done = process.run([*command[:-1], "--limit", "1", command[-1]], 60)
            self.assertEqual((done.code, "larger than 1 MiB" in done.stderr), (1, True), done.stderr)


class HeldTest(unittest.TestCase):
    LIBRARY = """
        int nvmlInit_v2(void) { return 0; }
        int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = 0; return index; }
    """

    def words(self, environment):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict("os.environ", environment):
            held = holding.Held(Path(folder))
            end = time.monotonic() + 120
            while not held.words() and time.monotonic() < end:
                time.sleep(0.02)
            words, is_running = held.words(), held._child.poll() is None
            held.end()
            self.assertIsNotNone(held._child.poll())
            return words, is_running

    def test_one_handle_is_held_until_the_end(self):
        if shutil.which("gcc") is None:
            self.skipTest("there is no gcc")
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "x.c").write_text(self.LIBRARY)
            subprocess.run(["gcc", "-shared", "-fPIC", "x.c", "-o", "libnvidia-ml.so.1"], cwd=folder, check=True)
            environment = {"LD_LIBRARY_PATH": folder, nvidia_smi.ONLY: ""}
            self.assertEqual(self.words(environment), ("held", True))
            self.assertIn("cannot open shared object", self.words({"LD_LIBRARY_PATH": ""})[0])


class ExampleTest(unittest.TestCase):
    def rows(self, script, dry=False):
        with tempfile.TemporaryDirectory() as folder:
            binary = Path(folder) / "gputune"
            if script:
                (Path(folder) / "examples").mkdir()
                built = Path(folder) / "examples" / example.NAME
                built.write_text(f"#!/bin/sh\n{script}\n")
                built.chmod(0o755)
            report = results.Report(Path(folder) / "x.json", "x")
            example.rust(Context(str(binary), folder, folder, 20.0, dry=dry), report)
        return [(row.outcome, row.seen) for row in report.rows]

    def test_the_rust_example_has_to_end_with_a_best_config(self):
        printed = "echo 'batch_size=256: 900 samples/s'; echo 'best: batch_size=256'"
        self.assertEqual(self.rows(printed), [("passed", "exit code 0; 1 configs; best: batch_size=256")])
        self.assertEqual(self.rows("exit 0")[0][0], "failed")
        self.assertEqual(self.rows("echo 'cuda_step cannot run: no driver' >&2; exit 1", dry=True)[0][0], "skipped")
        self.assertIn("cargo build --release --example cuda_step", self.rows("")[0][1])


class UsersTest(unittest.TestCase):
    def test_a_user_that_cannot_run_the_load_is_told_apart_from_a_gputune_that_fails(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(meters, "as_user") as as_user:
            copy = Path(folder)
            as_user.return_value = [sys.executable, "-c", "import no_such_module"]
            self.assertIn("No module named 'no_such_module'", meters.why_not_as(copy, 65534))
            (copy / "out-trial").rmdir()
            script = "import os, sys; sys.exit(os.environ['HOME'] != os.environ['XDG_CACHE_HOME'])"
            as_user.return_value = [sys.executable, "-c", script]
            self.assertIsNone(meters.why_not_as(copy, 65534))
            with mock.patch.object(meters.shutil, "which", return_value=None):
                self.assertIn("setpriv", meters.why_not_as(copy, 65534))

    def test_the_copy_of_the_binary_goes_away(self):
        with tempfile.TemporaryDirectory() as folder:
            context = Context(sys.executable, folder, folder, 9.0)
            with mock.patch.object(meters, "compare_users", side_effect=OSError) as compare:
                self.assertRaises(OSError, meters.gpm, context, None)
            self.assertFalse(compare.call_args[0][2].exists())


class IdentityTest(unittest.TestCase):
    def test_the_first_visible_gpu_on_the_bus_is_chosen(self):
        uuids = ["GPU-a1", "GPU-ab", "GPU-c3"]
        for visible, chosen in [
            (None, "GPU-a1"),
            ("", None),
            ("2,0", "GPU-c3"),
            ("7", None),
            (" GPU-c,GPU-a1", "GPU-c3"),
            ("GPU-a", None),
            ("MIG-1", None),
        ]:
            self.assertEqual(nvidia_smi.choose(visible, uuids), chosen)
        self.assertIsNone(nvidia_smi.choose(None, []))

    def test_all_that_is_started_sees_one_gpu(self):
        with mock.patch.dict("os.environ", {"CUDA_VISIBLE_DEVICES": "1"}):
            with mock.patch.object(nvidia_smi, "query", return_value=[["GPU-a"], ["GPU-b"]]):
                self.assertEqual(nvidia_smi.use_one_gpu(), "GPU-b")
            script = "import os; print(os.environ['CUDA_DEVICE_ORDER'], os.environ['CUDA_VISIBLE_DEVICES'])"
            self.assertEqual(process.run([sys.executable, "-c", script], 20).stdout, "PCI_BUS_ID GPU-b\n")
            self.assertEqual(nvidia_smi.chosen_alone(), ["-i", "GPU-b"])

    def test_another_build_is_another_binary(self):
        with tempfile.TemporaryDirectory() as folder:
            binary = Path(folder) / "gputune"
            keys = set()
            for content in (b"one", b"two", b"one"):
                binary.write_bytes(content)
                keys.add(machine.identity_key({"binary_sha256": machine.sha256(str(binary)), "uuid": "GPU-a"}))
        self.assertEqual(len(keys), 2)

    def test_results_of_another_binary_are_neither_mixed_nor_lost(self):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "out"
            out.mkdir()
            mine, other = {"binary_sha256": "1", "uuid": None}, {"binary_sha256": "2", "uuid": None}
            self.assertEqual(results.earlier_checks(out, mine), ({}, None))
            (out / results.FILE).write_text(json.dumps({"machine": mine, "checks": {"device": {}}}))
            (out / "gpt-grid.csv").write_text("batch_size")
            self.assertEqual(results.earlier_checks(out, mine), ({"device": {}}, None))
            for number in (1, 2):
                moved = out.with_name(f"out-earlier-{number}")
                self.assertEqual(results.earlier_checks(out, other), ({}, moved))
                self.assertEqual(list(out.iterdir()), [])
                self.assertTrue((moved / results.FILE).exists())
                (out / results.FILE).write_text("cut of")
            self.assertTrue((out.with_name("out-earlier-1") / "gpt-grid.csv").exists())


class PythonTest(unittest.TestCase):
    def test_the_python_of_specs_is_the_one_that_runs_the_checks(self):
        with tempfile.TemporaryDirectory() as folder:
            other = Path(folder) / "python3.99"
            other.write_text("#!/bin/sh\necho this one\n")
            other.chmod(0o755)
            (Path(folder) / "python3").write_text("another")
            context = Context("gputune", folder, folder, 9.0)
            with mock.patch.object(sys, "executable", str(other)):
                environment = context.environment()
            done = process.run(["sh", "-c", "python3"], 20, env=environment)
            self.assertEqual(done.stdout, "this one\n")
            self.assertTrue(Path(environment["XDG_CACHE_HOME"]).is_dir())


class CompileTest(unittest.TestCase):
    def judged(self, statuses, missing):
        made = [{"compile": "default", "status": status} for status in statuses]
        made += [{"compile": "off", "status": "runtime_fail"}, {"compile": "", "status": "runtime_fail"}]
        with tempfile.TemporaryDirectory() as folder:
            report = results.Report(Path(folder) / "x.json", "x")
            with mock.patch.object(machine, "missing_for_compile", return_value=missing):
                searches.judge_compile(report, made)
        return searches.compiled_failures(made), [(row.outcome, row.seen) for row in report.rows]

    def test_a_grid_says_how_many_of_its_compiled_configs_failed(self):
        self.assertEqual(self.judged([], ""), ("", []))
        self.assertEqual(self.judged(["ok", "oom_fail"], ""), ("", [("passed", "0 of 2 failed (0 %)")]))
        words, rows = self.judged(["runtime_fail"] * 2, "a C compiler")
        self.assertEqual(words, ", 2 of 2 with torch.compile failed, memory aside")
        self.assertEqual(rows, [("skipped", "skipped: 2 of 2 failed (100 %); Triton needs a C compiler")])
        self.assertEqual(self.judged(["runtime_fail"] * 2, "")[1][0][0], "failed")
        self.assertEqual(self.judged(["runtime_fail", "ok"], "a C compiler")[1][0][0], "failed")

    def test_what_triton_needs_is_named(self):
        with mock.patch.object(machine.shutil, "which", return_value=None):
            self.assertIn("a C compiler", machine.missing_for_compile())


class SpecsTest(unittest.TestCase):
    def test_the_load_counts_the_same_seconds_in_a_probe_as_alone(self):
        text = (GPU / "specs" / "load.toml").read_text()
        self.assertIn(f'"--rate-seconds", "{meters.RATE_SECONDS}"', text)

    def test_a_grid_has_the_space_of_its_search(self):
        def space(name):
            text = (GPU / "specs" / f"{name}.toml").read_text()
            return re.search(r"\[space\]\n(.*?)\n\n", text, re.DOTALL).group(1).replace(", monotone = false", "")

        for name in ("images", "gpt"):
            self.assertEqual(space(name), space(f"{name}-grid"))


try:
    import pictures
    import torch
    import torch_bench
except ImportError:
    torch = None


@unittest.skipIf(torch is None, "no torch")
class PicturesTest(unittest.TestCase):
    def test_files_are_read_as_they_were_drawn(self):
        for side in (3, 40):
            drawn = pictures.draw(3, 16, side)
            self.assertTrue(torch.equal(pictures.decode_png(pictures.encode_png(drawn)), drawn))

    def test_all_filters_that_are_known(self):
        pixels = torch.tensor(
            [[[1, 2, 3], [250, 5, 6]], [[7, 8, 9], [1, 1, 1]], [[9, 9, 9], [3, 2, 1]]], dtype=torch.uint8
        )
        rows = pixels.reshape(3, -1)
        sub = torch.cat([rows[1][:3], rows[1][3:] - rows[1][:3]])
        filtered = [rows[0], sub, rows[2] - rows[1]]
        data = b"".join(bytes([kind]) + bytes(row.tolist()) for kind, row in zip((0, 1, 2), filtered))
        whole = pictures.encode_png(pixels)
        header = whole[8:33]
        content = (
            pictures.SIGNATURE + header + pictures.chunk(b"IDAT", zlib.compress(data)) + pictures.chunk(b"IEND", b"")
        )
        self.assertTrue(torch.equal(pictures.decode_png(content), pixels))

    def test_pictures_are_written_without_numpy(self):
        script = """if True:
            import sys
            sys.modules["numpy"] = None
            import pictures
            kinds = ["png", "jpg"] if pictures.has_pillow() else ["png"]
            for kind in kinds:
                for path in pictures.write_set(sys.argv[1], 2, 16, 24, kind):
                    assert pictures.read(path).shape == (24, 24, 3)
        """
        with tempfile.TemporaryDirectory() as folder:
            done = process.run([sys.executable, "-c", script, folder], 60, cwd=GPU / "scripts")
        self.assertEqual(done.code, 0, done.stderr)

    def test_what_is_no_picture_is_refused(self):
        with self.assertRaises(ValueError):
            pictures.decode_png(b"no picture at all")


@unittest.skipIf(torch is None, "no torch")
class TorchBenchTest(unittest.TestCase):
    def test_the_median_of_samples_that_are_long_enough_after_a_warm_up(self):
        asked = []

        def timed(work, repetitions):
            asked.append(repetitions)
            time.sleep(0.004)
            return repetitions * (0.1 if len(asked) < 3 else 0.004)

        self.assertAlmostEqual(torch_bench.seconds(None, timed, 0.3), 0.004)
        self.assertEqual(asked[:3], [1, 1, 1])
        self.assertGreaterEqual(asked[-1] * 0.004, torch_bench.SAMPLE_SECONDS)
        self.assertGreater(len(asked), 10)

    def test_its_pace_is_that_of_gputune(self):
        code = (GPU.parent / "src" / "machine" / "ceilings" / "sample.rs").read_text()
        pace = (
            f"warmup: {torch_bench.WARMUP_SECONDS}, sample: {torch_bench.SAMPLE_SECONDS}, "
            f"limit: {torch_bench.LIMIT_SECONDS}, samples: {torch_bench.SAMPLES} "
        )
        self.assertIn(pace, code)

    def test_host_memory_was_written(self):
        self.assertEqual(int(torch_bench.host_memory(1000, False).sum()), 1000)


if __name__ == "__main__":
    unittest.main()
