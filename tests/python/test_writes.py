"""Tests of the guard of the user's files and of silenced trackers, in processes that start as in a probe."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest
from importlib.util import find_spec
from pathlib import Path

from harness import write_folder

LIMIT_SECONDS = 240


def digest(folder: Path) -> dict[str, str]:
    """The mode of each path below a folder, with the target of a link or the hash of a file's content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            content = os.readlink(path)
        elif path.is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            content = ""
        found[str(path.relative_to(folder))] = f"{path.lstat().st_mode:o} {content}"
    return found


class Probe(unittest.TestCase):
    """A project with files of an earlier run, and the folders and variables that gputune gives to a probe of it."""

    def setUp(self) -> None:
        self.root = Path(self.enter(tempfile.TemporaryDirectory()))
        self.project, self.scratch, self.hook = (self.root / name for name in ("project", "scratch", "hook"))
        for folder in (self.project, self.scratch, self.hook):
            folder.mkdir()
        write_folder(self.hook, None)
        for name, text in {
            "model.pt": "old",
            "log.txt": "first\n",
            "kept.txt": "kept",
            "checkpoint-1/weights": "one",
            "checkpoint-1/deep/state": "deep",
            "checkpoint-2/weights": "two",
        }.items():
            (self.project / name).parent.mkdir(parents=True, exist_ok=True)
            (self.project / name).write_text(text)
        (self.project / "last").symlink_to("checkpoint-2")

    def enter(self, context):
        value = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return value

    def environment(self, **more: str) -> dict[str, str]:
        path = os.pathsep.join(filter(None, (str(self.hook), more.pop("PYTHONPATH", ""))))
        guard = {"GPUTUNE_WRITES": "guard", "GPUTUNE_SCRATCH": str(self.scratch), "PYTHONPATH": path}
        return {**os.environ, "HOME": str(self.root), **guard, **more}

    def run_script(self, script: str, code: int = 0, **more: str) -> str:
        (self.root / "script.py").write_text(textwrap.dedent(script))
        before = digest(self.project)
        done = subprocess.run(
            [sys.executable, str(self.root / "script.py")],
            cwd=self.project,
            env=self.environment(**more),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_SECONDS,
        )
        self.assertEqual(done.returncode, code, done.stdout)
        self.assertEqual(digest(self.project), before, done.stdout)
        return done.stdout


class Guarded(Probe):
    def test_writing_and_reading_again(self) -> None:
        self.run_script(
            """
            import io, os, pathlib
            open("model.pt", "w").write("new")
            assert open("model.pt").read() == io.open("model.pt", "rb").read().decode() == "new"
            with open("log.txt", "a") as file: file.write("second\\n")
            with open("log.txt", "r+") as file: file.write("F")
            assert pathlib.Path("log.txt").read_text() == "First\\nsecond\\n"
            pathlib.Path("new.txt").write_text("n")
            assert os.path.getsize("new.txt") == 1 and "new.txt" in os.listdir() and pathlib.Path("new.txt").exists()
            with os.fdopen(os.open("kept.txt", os.O_RDWR), "r+") as file: file.write("K")
            assert open("kept.txt").read() == "Kept"
            os.truncate("kept.txt", 2)
            assert open(b"kept.txt").read() == "Ke"
            for mode, error in (("x", FileExistsError), ("r+", FileNotFoundError)):
                try: open("model.pt" if mode == "x" else "none", mode)
                except error as raised: assert raised.filename in ("model.pt", "none"), raised
                else: raise AssertionError(mode)
            try: open("none/file", "w")
            except FileNotFoundError: pass
            else: raise AssertionError("a folder that is not there")
            open("last/weights", "w").write("by the link")
            assert open("checkpoint-2/weights").read() == "by the link"
            """
        )

    def test_removing_only_looks_so(self) -> None:
        self.run_script(
            """
            import glob, os, pathlib, shutil
            os.remove("model.pt")
            assert not os.path.exists("model.pt") and "model.pt" not in [entry.name for entry in os.scandir(".")]
            for read in (open, os.stat, os.unlink, os.listdir):
                try: read("model.pt")
                except FileNotFoundError: pass
                else: raise AssertionError(read)
            open("model.pt", "x").close()
            shutil.rmtree("checkpoint-1")
            assert glob.glob("checkpoint-*") == ["checkpoint-2"] and not pathlib.Path("checkpoint-1/deep/state").exists()
            try: os.rmdir("checkpoint-2")
            except OSError as error: assert error.errno == 39, error
            else: raise AssertionError("a folder with a file")
            os.makedirs("checkpoint-1")
            assert os.listdir("checkpoint-1") == [] and list(pathlib.Path("checkpoint-1").iterdir()) == []
            os.unlink("last")
            os.symlink("checkpoint-1", "last")
            assert os.readlink("last") == "checkpoint-1" and os.path.isdir("last") and os.path.islink("last")
            """
        )

    def test_two_dots_after_a_link_are_the_parent_of_its_target(self) -> None:
        (self.project / "weights").write_text("other")
        (self.project / "by").symlink_to("checkpoint-1/deep")
        (self.project / "around").symlink_to("by/../../checkpoint-2")
        self.run_script(
            """
            import os, tempfile
            with open("by/../weights", "a") as file: file.write("+")
            with open("by/./../deep/../weights", "r+") as file: file.write("O")
            assert open("by/../weights").read() == open("checkpoint-1/weights").read() == "One+"
            assert open("weights").read() == "other"
            os.remove("by/../weights")
            assert not os.path.exists("checkpoint-1/weights") and os.path.exists("weights")
            open("around/weights", "w").write("around")
            assert open("checkpoint-2/weights").read() == "around" and sorted(os.listdir("by/..")) == ["deep"]

            free = tempfile.mkdtemp()
            os.symlink(os.path.abspath("checkpoint-1"), free + "/link")
            with open(free + "/link/../model.pt", "w") as file: file.write("new")
            assert open("model.pt").read() == "new" and os.listdir(free) == ["link"]
            os.remove(free + "/link"); os.rmdir(free)

            os.symlink("checkpoint-1/deep", "made")  # only in the layer
            assert open("made/../../log.txt").read() == "first\\n" and os.listdir("made/..") == ["deep"]
            os.symlink("loop/..", "loop")
            try: open("loop/file", "w")
            except OSError as error: assert error.errno == 40, error
            else: raise AssertionError("a loop of links")
            """
        )

    def test_renaming(self) -> None:
        self.run_script(
            """
            import os, shutil, tempfile
            os.rename("checkpoint-1", "moved")
            assert open("moved/deep/state").read() == "deep" and not os.path.exists("checkpoint-1/deep/state")
            open("moved/weights", "w").write("changed")
            os.makedirs("tmp"); open("tmp/weights", "w").write("three"); os.rename("tmp", "checkpoint-3")
            os.replace("checkpoint-3/weights", "checkpoint-2/weights")
            assert open("checkpoint-2/weights").read() == "three" and os.listdir("checkpoint-3") == []
            with tempfile.NamedTemporaryFile("w", delete=False) as file: file.write("at once")
            shutil.move(file.name, "model.pt")
            assert open("model.pt").read() == "at once" and not os.path.exists(file.name)
            with tempfile.NamedTemporaryFile("w", dir=".", delete=False) as file: file.write("beside")
            os.replace(file.name, "model.pt")
            assert open("model.pt").read() == "beside"
            shutil.copytree("checkpoint-2", "copy")
            assert sorted(os.listdir("copy")) == ["weights"]
            os.link("kept.txt", "second"); open("second", "w").write("other")
            """
        )

    def test_processes_of_a_probe_see_one_layer(self) -> None:
        self.run_script(
            """
            import multiprocessing, os, subprocess, sys

            def work(name):
                assert open("model.pt").read() == "new"
                open(name, "w").write("from " + name)

            if __name__ == "__main__":
                open("model.pt", "w").write("new")
                for method in ("fork", "spawn"):
                    process = multiprocessing.get_context(method).Process(target=work, args=(method,))
                    process.start(); process.join()
                    assert process.exitcode == 0 and open(method).read() == "from " + method
                subprocess.run([sys.executable, "-c", "import os; os.remove('fork')"], check=True)
                assert not os.path.exists("fork") and os.path.exists("spawn")
            """
        )

    def test_the_functions_stay_functions_of_c(self) -> None:
        self.run_script(
            """
            import inspect, os, pickle
            from multiprocessing import Pool

            class Accessor:  # a function of Python would be a method here
                stat = os.stat
                open = open

            if __name__ == "__main__":
                assert Accessor().stat("model.pt").st_size == 3 and Accessor().open("model.pt").read() == "old"
                assert pickle.loads(pickle.dumps(os.remove)) is os.remove and pickle.loads(pickle.dumps(open)) is open
                with Pool(1) as pool: pool.map(os.remove, ["model.pt"])
                assert not os.path.exists("model.pt")
                assert os.stat in os.supports_dir_fd and os.remove.__name__ == "remove"
                assert "mode" in inspect.signature(open).parameters
            """
        )

    def test_what_is_no_file_of_the_user_is_written(self) -> None:
        self.run_script(
            """
            import os, sys, tempfile
            open("/dev/null", "w").write("x")
            read, write = os.pipe(); os.close(read)
            os.fdopen(write, "w").close()
            with tempfile.NamedTemporaryFile("w") as file: file.write("x"); file.flush(); assert os.path.getsize(file.name)
            cache = os.path.expanduser("~/.cache/kernels"); os.makedirs(cache, exist_ok=True)
            open(os.path.join(cache, "k"), "w").write("real")
            print("printed", file=sys.stdout)
            """
        )
        self.assertEqual((self.root / ".cache/kernels/k").read_text(), "real")

    def test_what_lay_in_a_temporary_folder_before_is_guarded(self) -> None:
        earlier = Path(self.enter(tempfile.TemporaryDirectory(prefix="run-")))
        (earlier / "checkpoint").write_text("earlier")
        self.run_script(f"import shutil, os; shutil.rmtree({str(earlier)!r}); assert not os.path.exists({str(earlier)!r})")
        self.assertEqual((earlier / "checkpoint").read_text(), "earlier")

    def test_a_working_folder_that_is_only_in_the_layer(self) -> None:
        self.run_script(
            """
            import os, subprocess, sys
            os.makedirs("outputs/run"); os.chdir("outputs/run")
            open("here", "w").write("h")
            assert os.getcwd().endswith("project/outputs/run") and os.listdir() == ["here"]
            assert open("../../model.pt").read() == "old"
            subprocess.run([sys.executable, "-c", "assert open('here').read() == 'h'; open('there', 'w')"], check=True)
            os.chdir("../.."); assert sorted(os.listdir("outputs/run")) == ["here", "there"]
            """
        )

    def test_what_goes_round_the_functions_is_refused(self) -> None:
        said = self.run_script(
            """
            import io, posix
            for change in (lambda: io.FileIO("model.pt", "w"), lambda: posix.unlink("model.pt"), lambda: posix.rename("model.pt", "m")):
                try: change()
                except PermissionError as error: print(error)
                else: raise AssertionError("not refused")
            io.FileIO("model.pt").close()
            """
        )
        self.assertEqual(said.count('`[step] writes = "allow"`'), 3, said)

    @unittest.skipUnless(find_spec("torch"), "there is no torch")
    def test_libraries_that_write_files_themselves(self) -> None:
        self.run_script(
            """
            import os, pathlib, sqlite3
            from importlib.util import find_spec
            import numpy, torch
            torch.save({"a": 1}, "model.pt")
            assert torch.load("model.pt")["a"] == torch.load(pathlib.Path("model.pt"))["a"] == 1
            torch.save({"a": 2}, pathlib.Path("new.pt")); os.replace("new.pt", "model.pt")
            assert torch.load("model.pt")["a"] == 2 and not os.path.exists("new.pt")
            torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), "log.txt"); torch.jit.load("log.txt")
            with torch.profiler.profile() as profile: torch.ones(2) + 1
            profile.export_chrome_trace("kept.txt"); assert os.path.getsize("kept.txt") > 4
            array = numpy.memmap("checkpoint-2/weights", dtype="u1", mode="r+"); array[0] = 65; array.flush()
            assert open("checkpoint-2/weights").read() == "Awo"
            numpy.ones(3).tofile("checkpoint-1/weights"); assert numpy.fromfile("checkpoint-1/weights").sum() == 3
            connection = sqlite3.connect("runs.db"); connection.execute("create table t(a)"); connection.close()
            if find_spec("safetensors"):
                from safetensors import safe_open
                from safetensors.torch import load_file, save_file
                save_file({"a": torch.ones(2)}, "model.pt"); assert load_file("model.pt")["a"].sum() == 2
                with safe_open("model.pt", "pt") as file: assert list(file.keys()) == ["a"]
            if find_spec("h5py"):
                import h5py
                with h5py.File("model.pt", "w") as file: file["x"] = [1]
                with h5py.File("model.pt", "a") as file: file["y"] = [1]
                with h5py.File("model.pt") as file: assert sorted(file) == ["x", "y"]
            """
        )

    def test_no_byte_code_is_added(self) -> None:
        (self.project / "own.py").write_text("A = 1\n")
        self.run_script("import sys; sys.path.insert(0, ''); import own")

    def test_a_guard_that_cannot_be_had_ends_the_process(self) -> None:
        said = self.run_script("print('trained')", code=1, GPUTUNE_SCRATCH="/proc/none")
        self.assertIn("gputune's guard of files", said)
        self.assertNotIn("trained", said)

    def test_without_being_asked_it_guards_nothing(self) -> None:
        for writes in ("allow", "scratch", ""):
            (self.root / "plain.py").write_text("import builtins, io, os; assert type(open) is type(os.stat) is type(len); open('made', 'w')")
            environment = self.environment(GPUTUNE_WRITES=writes)
            subprocess.run([sys.executable, str(self.root / "plain.py")], cwd=self.project, env=environment, check=True)
            (self.project / "made").unlink()


STAND_INS = {
    "wandb.py": "def init(project=None, *, mode=None, **more): print('wandb', mode)\n",
    "neptune.py": "def init_run(project=None, mode='async'): print('neptune', mode)\n",
    "swanlab.py": "def init(project=None, **more): print('swanlab', more.get('mode'))\n",
    "comet_ml.py": "class Experiment:\n    def __init__(self, key=None, disabled=None): print('comet', disabled)\n",
    "mlflow/__init__.py": "def set_tracking_uri(uri): print('mlflow', uri)\n",
    "dvclive/__init__.py": "from dvclive.live import Live\n",
    "dvclive/live.py": "class Live:\n    def __init__(self, dir='d', save_dvc_exp=True): print('dvclive', save_dvc_exp)\n",
    "trackio.py": "def init(project, space_id=None): print('trackio', space_id)\n",
    "huggingface_hub/__init__.py": "from huggingface_hub.hf_api import create_repo, upload_folder, HfApi\n",
    "huggingface_hub/hf_api.py": """
class RepoUrl(str):
    pass
class CommitInfo:
    def __init__(self, commit_url, commit_message, commit_description, oid): self.commit_url = commit_url
class HfApi:
    endpoint = 'https://hub'
    def create_repo(self, repo_id, **more): raise OSError('network')
    def upload_folder(self, *, repo_id, folder_path, run_as_future=False): raise OSError('network')
    def delete_repo(self, repo_id): raise OSError('network')
    def model_info(self, repo_id): return 'info of ' + repo_id
api = HfApi()
create_repo = api.create_repo
upload_folder = api.upload_folder
""",
}

SCRIPT = """
import wandb, neptune, swanlab, comet_ml, mlflow, trackio
from dvclive import Live
from huggingface_hub import HfApi, create_repo, upload_folder
wandb.init("p", mode="online"); neptune.init_run(mode="async"); swanlab.init(mode="cloud"); comet_ml.Experiment("k", False)
mlflow.set_tracking_uri("http://server"); Live(); trackio.init("p", space_id="u/s"); trackio.init("p", "u/s")
print(create_repo("me/model"), HfApi().create_repo("model", private=True))
print(upload_folder(repo_id="me/model", folder_path=".").commit_url)
print(HfApi().upload_folder(repo_id="me/model", folder_path=".", run_as_future=True).result().commit_url)
print(HfApi().delete_repo("me/model"), HfApi().model_info("me/model"))
"""


class Silence(Probe):
    def trackers(self, **more: str) -> str:
        for name, text in STAND_INS.items():
            path = self.root / "installed" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        values = {"WANDB_MODE": "disabled", "NEPTUNE_MODE": "debug", "SWANLAB_MODE": "disabled"}
        values |= {"COMET_AUTO_LOG_DISABLE": "1", "GPUTUNE_TRACKERS": "silent", "PYTHONPATH": str(self.root / "installed")}
        return self.run_script(SCRIPT, **{**values, **more})

    def test_what_a_script_says_itself_does_not_go_before(self) -> None:
        said = self.trackers()
        expected = ["wandb disabled", "neptune debug", "swanlab disabled", "comet True", "dvclive False", "trackio None"]
        for line in expected:
            self.assertIn(line, said)
        self.assertNotIn("server", said)
        self.assertNotIn("u/s", said)
        self.assertIn("https://hub/me/model https://hub/nobody/model", said)
        self.assertEqual(said.count("https://hub/me/model/commit/"), 2)
        self.assertIn("None info of me/model", said)
        self.assertEqual(said.count("nothing is pushed to a hub in a probe"), 1)

    def test_a_variable_that_the_spec_sets_otherwise_holds(self) -> None:
        said = self.trackers(WANDB_MODE="offline", NEPTUNE_MODE="sync")
        self.assertIn("wandb online", said)
        self.assertIn("neptune async", said)

    def test_all_of_it_can_be_left_alone(self) -> None:
        with self.assertRaisesRegex(AssertionError, "network"):
            self.trackers(GPUTUNE_TRACKERS="allow")


if __name__ == "__main__":
    unittest.main()
