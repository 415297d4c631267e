"""Tests that a script gets the rendered file when it opens its own settings file, by any function."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import harness

#: Each entry of `found` opens config.yaml in another way. Entries of `own` must show the script's own files.
SCRIPT = """
import codecs, io, json, multiprocessing, os, pathlib, subprocess, sys

def read():
    return open("config.yaml").read()

if __name__ == "__main__":
    found = {
        "open": read(),
        "bytes": open(b"./config.yaml", "rb").read().decode(),
        "io": io.open(os.path.abspath("config.yaml"), mode="rt").read(),
        "pathlib": pathlib.Path(__file__).with_name("config.yaml").read_text(),
        "codecs": codecs.open("config.yaml", encoding="utf-8").read(),
        "link": open("link.yml").read(),
        "child": subprocess.check_output([sys.executable, "-c", "print(open('config.yaml').read(), end='')"], text=True),
        "spawned": multiprocessing.get_context("spawn").Pool(1).apply(read),
    }
    os.chdir("sub")
    found["elsewhere"] = open("../config.yaml").read()
    own = {"same name": open("config.yaml").read()}
    with open("../config.yaml", "a") as file:
        file.write("more")
    own["descriptor"] = open(os.open("../config.yaml", os.O_RDONLY)).read()
    print(json.dumps([found, own, repr(open)]))
"""


class ReplacedFiles(unittest.TestCase):
    def test_every_way_to_open_the_file_gives_the_rendered_file_and_other_files_stay(self):
        with tempfile.TemporaryDirectory() as folder:
            job = Path(folder)
            (job / "sub").mkdir()
            for name, text in (
                ("train.py", SCRIPT), ("config.yaml", "own"), ("new.yaml", "rendered"), ("sub/config.yaml", "other")
            ):
                (job / name).write_text(text)
            (job / "link.yml").symlink_to("config.yaml")
            files = json.dumps({str(job / "config.yaml"): str(job / "new.yaml")})
            path = os.pathsep.join([str(harness.PYTHON / "hook"), str(harness.PYTHON)])
            for environment, expected in (({"GPUTUNE_REPLACED_FILES": files}, "rendered"), ({}, "own")):
                (job / "config.yaml").write_text("own")
                done = subprocess.run(
                    [sys.executable, "train.py"],
                    cwd=folder, env={**os.environ, "PYTHONPATH": path, **environment}, capture_output=True, text=True,
                )
                self.assertEqual(done.returncode, 0, done.stderr)
                found, own, shown = json.loads(done.stdout)
                self.assertEqual(found, dict.fromkeys(found, expected))
                self.assertEqual(own, {"same name": "other", "descriptor": "ownmore"})
                self.assertIn("open", shown)


if __name__ == "__main__":
    unittest.main()
