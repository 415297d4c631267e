"""Tests of the notes that a first run makes of a script: options, files, variables and loaders."""

import argparse
import json
import os
import sys
import unittest

import harness

try:
    import torch  # noqa: F401
except ImportError as missing:
    raise unittest.SkipTest("torch is not installed") from missing


@harness.on_the_cpu
class FirstRun(unittest.TestCase):
    """Runs the script first_run.py."""

    def test_options_files_variables_and_loaders_are_noted(self):
        result = harness.run("first_run.py", stop_after=None, experiment={"mode": "first_run"}, options=("--bs", "8"))
        self.assertEqual(result.code, 0, result.output)
        notes = [json.loads(line) for line in result.output.splitlines() if line.startswith("{")]
        named = {name: [note[name] for note in notes if name in note] for note in notes for name in note}
        self.assertEqual([option["names"] for option in named["arguments"][0] if option["value"] == 8], [["--bs"]])
        self.assertEqual([os.path.basename(path) for path in named["file"]], ["settings.json"])
        self.assertEqual(named["variable"], [{"name": "SIZE_OF_NOTHING", "value": 7, "is_set": False}])
        self.assertEqual((named["trainer"], named["sized"]), ([""], [True]))
        self.assertIn("torch", named["module"])
        self.assertTrue(all("first_run.py:" in loader["place"] for loader in named["loader"]), named["loader"])

    def test_an_ordinary_probe_notes_nothing_and_sets_the_loader_of_each_epoch(self):
        result = harness.run("first_run.py", {"dataloader.batch_size": 16}, stop_after=None)
        self.assertEqual(result.code, 0, result.output)
        self.assertEqual(result.output.split(), ["batch", "16"] * 6)
        self.assertEqual(result.applied, {"dataloader.batch_size"})


class Files(unittest.TestCase):
    def test_files_of_settings_are_known_by_their_endings(self):
        sys.path.insert(0, str(harness.PYTHON))
        from gputune._hook import first_run

        run, noted = first_run.FirstRun(), []
        run.note = lambda what, value: noted.append((what, os.path.basename(value)))
        for name in ("a.yaml", "b.ini", "c.cfg", "d.conf", ".env", "prod.env", "e.txt", "env"):
            run._note_file(f"/nowhere/{name}")
        expected = ["a.yaml", "b.ini", "c.cfg", "d.conf", ".env", "prod.env"]
        self.assertEqual(noted, [("file", name) for name in expected])


class Options(unittest.TestCase):
    def test_each_kind_of_option_is_described(self):
        sys.path.insert(0, str(harness.PYTHON))
        from gputune._hook import first_run

        parser = argparse.ArgumentParser()
        parser.add_argument("-b", "--bs", type=int, default=4, choices=[4, 8])
        parser.add_argument("--amp", action="store_true")
        parser.add_argument("--no-pin", action="store_false")
        parser.add_argument("--bf16", type=bool, nargs="?", const=True, default=False)
        parser.add_argument("--out", required=True)
        parser.add_argument("--many", nargs="+")
        if hasattr(argparse, "BooleanOptionalAction"):
            parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
        parsed = parser.parse_args(["--bs", "8", "--out", "x"])
        found = {tuple(option["names"]): option for option in first_run._arguments(parser, parsed)}
        self.assertEqual((found["-b", "--bs"]["value"], found["-b", "--bs"]["choices"]), (8, ["4", "8"]))
        kinds = {names[-1]: (option["kind"], option["default"]) for names, option in found.items()}
        self.assertEqual(kinds["--amp"], ("switch", "False"))
        self.assertEqual(kinds["--no-pin"], ("switch", None))
        self.assertEqual(kinds["--bf16"], ("maybe", "False"))
        self.assertTrue(found["--out",]["is_required"])
        self.assertNotIn("--many", kinds)
        if "--compile" in kinds:
            self.assertEqual((kinds["--compile"], found["--compile",]["off"]), (("pair", "True"), "--no-compile"))


if __name__ == "__main__":
    unittest.main()
