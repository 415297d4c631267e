"""Tests of the parts of a zygote, the process that imports a script's packages once and forks a child for each probe.

Tests of whole searches with a zygote are in tests/with_python/warm.rs.

Run with `python -m unittest discover -s tests/python`.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.join(HERE, "..", "..", "python")
sys.path.insert(0, PACKAGE)

from gputune._hook import imports  # noqa: E402
from gputune._hook.invocation import parse  # noqa: E402
from gputune._hook.reads import EnvironmentReads  # noqa: E402
from gputune._hook.zygote_guards import Guards  # noqa: E402


def guards(modules=(), environment=None, load_time=("OMP_",), own=()):
    task = {"modules": list(modules), "environment": environment or {}, "load_time": load_time, "own": own}
    return Guards(task)


def python(code, *arguments, env=None):
    """Runs code in a new Python process that can import the package. Returns stdout and stderr."""
    environment = {**os.environ, "PYTHONPATH": PACKAGE, **(env or {})}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True, timeout=240
    )
    return done.stdout, done.stderr


class Invocations(unittest.TestCase):
    def test_options_program_and_arguments_are_told_apart(self):
        cases = [
            (["python", "t.py"], ([], None, ["t.py"])),
            (["python", "-u", "-X", "dev", "t.py", "-c", "x"], (["-u", "-X", "dev"], None, ["t.py", "-c", "x"])),
            (["python", "-Wignore", "-OO", "./t.py"], (["-Wignore", "-OO"], None, ["./t.py"])),
            (["python", "-m", "pkg.train", "--b", "4"], ([], "pkg.train", ["-m", "--b", "4"])),
            (["python", "-B", "-mpkg", "x"], (["-B"], "pkg", ["-m", "x"])),
            (["python", "--check-hash-based-pycs", "never", "t"], (["--check-hash-based-pycs", "never"], None, ["t"])),
        ]
        for arguments, (options, module, argv) in cases:
            with self.subTest(arguments=arguments):
                found = parse(arguments)
                self.assertEqual((found.options, found.module, found.argv), (options, module, argv))

    def test_what_is_no_file_and_no_module_is_refused(self):
        for arguments in (["python"], ["python", "-c", "pass"], ["python", "-u"], ["python", "-"]):
            with self.subTest(arguments=arguments), self.assertRaises(ValueError):
                parse(arguments)


class Imports(unittest.TestCase):
    def test_what_was_imported_is_told_with_its_file_and_what_the_script_set(self):
        code = (
            "import os, sys; from gputune._hook import imports; sys.path.insert(0, sys.argv[1]); import theirs, json\n"
            "os.environ['NEW'] = 'x'; imports.write(sys.argv[1])"
        )
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "theirs.py"), "w", encoding="utf-8") as file:
                file.write("x = 1\n")
            _, errors = python(code, folder, env={"OLD": "y"})
            self.assertEqual(errors, "")
            with open(os.path.join(folder, imports.FILE), encoding="utf-8") as file:
                told = json.load(file)
            modules = {name: (path, installed) for name, path, installed in told["modules"]}
            self.assertEqual(modules["theirs"], (os.path.join(folder, "theirs.py"), False))
        self.assertTrue(modules["json"][1])
        self.assertNotIn("gputune", modules)
        self.assertNotIn("__main__", modules)
        self.assertEqual(told["environment"], {"NEW": "x"})
        self.assertEqual(told["unfit"], "the program is no file and no module")

    def test_time_in_imports_is_measured_without_a_trace_in_errors(self):
        code = (
            "from gputune._hook.import_times import TIMES\n"
            "TIMES.install()\n"
            "import json.tool, unittest.mock\n"
            "try:\n    import nothing_of_this_name\n"
            "except ImportError:\n    import traceback; traceback.print_exc()\n"
            "seconds = TIMES.take()\n"
            "print(0 < seconds < 60, TIMES.take())\n"
        )
        output, errors = python(code)
        self.assertEqual(output, "True None\n")
        self.assertEqual(errors.count("File "), 1, errors)


class TheGuards(unittest.TestCase):
    def test_a_thread_keeps_a_process_from_being_forked(self):
        self.assertIsNone(guards().against_fork())
        over = threading.Event()
        thread = threading.Thread(target=over.wait, name="noise")
        thread.start()
        try:
            self.assertEqual(guards().against_fork(), "an import started a thread (noise)")
        finally:
            over.set()
            thread.join()

    def test_native_threads_are_seen(self):
        code = (
            "import ctypes, time; from gputune._hook.zygote_guards import Guards\n"
            "work = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: time.sleep(5))\n"
            "libc = ctypes.CDLL(None); thread = ctypes.c_ulong()\n"
            "create = getattr(libc, 'pthread_create', None)\n"
            "create = create or ctypes.CDLL('libpthread.so.0').pthread_create\n"
            "create(ctypes.byref(thread), None, ctypes.cast(libc.pause, ctypes.c_void_p), None)\n"
            "task = {'modules': [], 'environment': {}, 'load_time': [], 'own': []}\n"
            "print(Guards(task).against_fork(), flush=True); import os; os._exit(0)\n"
        )
        output, errors = python(code)
        self.assertEqual(output, "an import started 1 native thread\n", errors)

    def test_nvml_may_be_open_but_the_driver_of_cuda_may_not_be_initialised(self):
        """Uses a small library as the driver, and a file as /dev/nvidiactl, which NVML keeps open."""
        compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
        if compiler is None:
            self.skipTest("no C compiler")
        code = (
            "import ctypes, sys; from gputune._hook import zygote_guards as guards\n"
            "guards._NVIDIA_FILES = (sys.argv[1],)\n"
            "task = {'modules': [], 'environment': {}, 'load_time': [], 'own': []}\n"
            "held = open(sys.argv[1] + '/nvidiactl', 'w'); print(guards.Guards(task).against_fork())\n"
            "driver = ctypes.CDLL(sys.argv[1] + '/libcuda.so.1'); print(guards.Guards(task).against_fork())\n"
            "driver.cuInit(0); print(guards.Guards(task).against_fork())\n"
        )
        driver = (
            "static int is_on;\nint cuInit(unsigned flags) { is_on = 1; return 0; }\n"
            "int cuDeviceGetCount(int *count) { *count = 1; return is_on ? 0 : 3; }\n"
        )
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "driver.c"), "w", encoding="utf-8") as file:
                file.write(driver)
            built = os.path.join(folder, "libcuda.so.1")
            subprocess.run([compiler, "-shared", "-fPIC", "-o", built, file.name], check=True)
            output, errors = python(code, os.path.realpath(folder))
        reason = f"an import has opened {os.path.realpath(folder)}/nvidiactl"
        self.assertEqual(output.splitlines(), ["None", "None", reason], errors)

    def test_a_variable_that_the_script_sets_counts_if_it_is_read_at_import(self):
        with EnvironmentReads() as reads:
            os.environ.get("READ_AT_IMPORT")
            os.getenv("TOO")
        self.assertEqual(reads.names, {"READ_AT_IMPORT", "TOO"})
        os.environ.get("LATER")
        self.assertEqual(reads.names, {"READ_AT_IMPORT", "TOO"})

        def reason(name, **more):
            return guards(environment={name: "1"}, **more).against_imports(reads.names)

        self.assertIn("the script sets OMP_NUM_THREADS itself", reason("OMP_NUM_THREADS"))
        self.assertIn("the script sets TOO itself", reason("TOO"))
        self.assertIsNone(reason("LATER"))
        self.assertIsNone(reason("TOO", own=["TOO"]))
        os.environ["TOO"] = "1"  # as if an import had set it
        try:
            self.assertIsNone(reason("TOO"))
        finally:
            del os.environ["TOO"]

    def test_a_module_of_the_script_in_the_place_of_an_installed_one_is_seen(self):
        self.assertIn("`json` from /theirs/json.py", guards([["json", "/theirs/json.py", False]]).against_imports(set()))
        self.assertIsNone(guards([["json", json.__file__, True], ["own", "/own.py", False]]).against_imports(set()))
        self.assertIn("`json`", guards([["json", "/other/site-packages/json.py", True]]).against_imports(set()))

    def test_the_files_of_what_is_imported_are_told_as_they_are(self):
        status = os.stat(json.__file__)
        self.assertEqual(imports.files()[json.__file__], (status.st_mtime_ns, status.st_size))


if __name__ == "__main__":
    unittest.main()
