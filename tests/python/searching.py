"""Tests of `gputune.tune`, `search` and `load` with the real command, which must be in `PATH`.

`tests/with_python/searching.rs` runs these tests.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest
from pathlib import Path
from unittest import mock

PACKAGE = Path(__file__).resolve().parents[2] / "python"
sys.path.insert(0, str(PACKAGE))

import gputune  # noqa: E402
from gputune import _study  # noqa: E402

TRAIN = """
import sys, time, gputune
assert sys.argv[1:] == ["--epochs", "3"]
config = gputune.config(batch_size=8)
while True:
    time.sleep(0.004)
    gputune.step(samples=config["batch_size"])
"""

#: A search of up to 5 minutes, which the tests end earlier.
LONG = """
import gputune
gputune.tune("train.py", args=["--epochs", 3], time="5m")
"""


class Searches(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        Path("train.py").write_text(TRAIN)
        variables = mock.patch.dict(os.environ, {"PYTHONPATH": str(PACKAGE)})
        variables.start()
        self.addCleanup(variables.stop)

    def status(self):
        try:
            return json.loads(Path("gputune-out/train/status.json").read_text())
        except (OSError, ValueError):
            return {}

    def begin_long(self):
        """Starts a Python process that tunes. Returns it after its first probe has ended."""
        process = subprocess.Popen([sys.executable, "-c", LONG], stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.wait_for(lambda: self.status().get("searched", 0) > 0)
        return process

    def wait_for(self, condition):
        end = time.monotonic() + 240
        while not condition():
            self.assertLess(time.monotonic(), end, "waited in vain")
            time.sleep(0.05)

    def test_tune_and_load(self):
        with mock.patch("sys.stderr.write") as written:
            study = gputune.tune("train.py", args=["--epochs", 3], time="2m", probes=4, set={"batch_size": 64})
        shown = "".join(call.args[0] for call in written.call_args_list)
        self.assertRegex(shown, r"gputune: 100%\|██████████\| \d/4 probes \[\d\d:\d\d<\d\d:\d\d, \d+ rounds?")
        self.assertEqual(study.folder, Path("gputune-out/train"))
        self.assertIn(sys.executable, Path("gputune-out/train/gputune.toml").read_text())
        written = json.loads(Path("gputune-out/train/best.json").read_text())
        self.assertEqual(study.report["config"], written["config"])
        self.assertEqual(study.best["batch_size"], 64)
        first = study.trials[0]
        self.assertEqual((first["trial"], first["outcome"], first["feasible"]), (1, "measured", True))
        self.assertGreater(first["throughput"], 0)
        self.assertIsNone(first["slot"])
        frames = types.SimpleNamespace(DataFrame=lambda rows: ("a frame of", rows))
        loaded = gputune.load("gputune-out/train")
        with mock.patch.dict(sys.modules, pandas=frames):
            self.assertEqual(loaded.trials, ("a frame of", study.trials))
        self.assertEqual(loaded.report, study.report)
        self.assertIn("command    gputune run gputune-out/train", str(study))
        # The same call continues: nothing is left to do.
        again = gputune.tune("train.py", args=["--epochs", 3], time="1s", set={"batch_size": 64}, progress=False)
        self.assertEqual(again.best, study.best)

    def test_search_of_tables_and_its_speedup(self):
        command = [sys.executable, "train.py", "--epochs", "3"]
        spec = {
            "step": {"command": command},
            "space": {"batch_size": {"values": [8, 512]}},
            "baseline": {"batch_size": 8},
            "limits": {"measure_time": "300ms"},
            "run": {"length": "1000000 samples"},
        }
        study = gputune.search(spec, out="runs/a", time="2m", probes=2, progress=False)
        self.assertEqual((study.folder, study.best, study.verdict), (Path("runs/a"), {"batch_size": 512}, "faster"))
        self.assertTrue(study.speedup.low <= study.speedup.value <= study.speedup.high)
        self.assertGreater(study.speedup.low, 8)
        run = study.whole_run
        self.assertEqual(run.length, "1000000 samples")
        self.assertLess(run.best_seconds.value, run.baseline_seconds)
        self.assertTrue(1 < run.speedup.low <= run.speedup.value <= run.speedup.high)
        self.assertGreater(study.throughput.value, 0)
        page = study._repr_html_()
        self.assertIn("<th>best</th><td>batch_size=512</td>", page)
        self.assertIn("-&gt;", page)
        ran = subprocess.run(f"exec timeout 3 {study.command}", shell=True, capture_output=True, text=True)
        self.assertEqual(ran.returncode, 124, ran.stderr)  # `timeout` ended the training

    def test_the_middle_of_a_wide_interval_is_not_shown(self):
        shown = [_study._times(_study.Interval(1.5, *ends)) for ends in ((1.3, 1.7), (1.2, 3.7), (0.9, 14.0))]
        self.assertEqual(shown, ["1.50x (1.30x to 1.70x)", "at least 1.20x", "not known"])

    def test_errors(self):
        with self.assertRaises(gputune.GputuneError) as caught:
            gputune.search({"step": {"command": ["true"]}, "spice": {}}, progress=False)
        self.assertEqual(caught.exception.exit_code, 2)
        self.assertIn("`spice`", str(caught.exception))
        with self.assertRaises(gputune.GputuneError) as caught:
            gputune.load("nowhere")
        self.assertEqual(caught.exception.exit_code, 2)
        self.assertTrue(str(caught.exception).startswith("there is no folder nowhere"), caught.exception)
        with self.assertRaisesRegex(TypeError, "no option 'tim'; the options are time, "):
            gputune.tune("train.py", tim="3m")
        with self.assertRaisesRegex(TypeError, "a spec cannot have the value None"):
            gputune.search({"step": {"command": None}})
        with mock.patch.dict(os.environ, PATH=""), self.assertRaises(gputune.GputuneError) as caught:
            gputune.load("nowhere")
        self.assertEqual(caught.exception.exit_code, 127)
        os.environ["GPUTUNE_SOCKET"] = str(self.folder / "socket")
        search = "import gputune; gputune.tune('train.py')"
        in_probe = subprocess.run([sys.executable, "-c", search], capture_output=True, text=True)
        self.assertIn("GputuneError: a training script must not search for its own config", in_probe.stderr)

    def test_ctrl_c_ends_the_search_and_keeps_its_results(self):
        process = self.begin_long()
        process.send_signal(signal.SIGINT)
        _, printed = process.communicate(timeout=240)
        self.assertIn("KeyboardInterrupt: the search was stopped; its results are in gputune-out/train", printed)
        self.assertEqual(self.status()["ended"], {"stopped": "interrupted"})
        self.assertIn("batch_size", gputune.load("gputune-out/train").best)

    def test_a_killed_python_leaves_no_search_behind(self):
        process = self.begin_long()
        process.kill()
        process.wait()
        self.wait_for(lambda: self.status().get("ended") == {"stopped": "interrupted"})
        command_line = Path(f"/proc/{self.status()['pid']}/cmdline")
        # The process may still write results into the folder, so the test waits for its end.
        self.wait_for(lambda: not command_line.exists() or not command_line.read_bytes())

    def test_the_module_runs_the_command(self):
        version = subprocess.run([sys.executable, "-m", "gputune", "--version"], capture_output=True, text=True)
        self.assertEqual((version.stdout.strip(), version.returncode), (f"gputune {gputune.__version__}", 0))
        wrong = subprocess.run([sys.executable, "-m", "gputune", "report", "nowhere"], capture_output=True, text=True)
        self.assertEqual(wrong.returncode, 2)


if __name__ == "__main__":
    unittest.main()
