"""Tests of the package `gputune` as scripts use it: real processes that send events to a real socket.

Run with `python -m unittest discover -s tests/python`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import unittest
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "python"
VARIABLES = (
    *("GPUTUNE_TRAINER", "GPUTUNE_SOCKET", "GPUTUNE_CONFIG", "GPUTUNE_TRIAL"),
    *("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    *("PMI_RANK", "PMI_SIZE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)


def clean_environment(**more):
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    return {**kept, "PYTHONPATH": str(PACKAGE), **more}


def run(script, environment, check=True, timeout=240):
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)
    if check and done.returncode != 0:
        raise AssertionError(f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


class Probe:
    """gputune's side of a probe: a socket that keeps the events of each connection. It sends `order` after each step."""

    def __init__(self, config=None, order=None):
        self.folder = Path(tempfile.mkdtemp(prefix="gputune-"))
        self.path = self.folder / "s"
        self.config = config or {}
        self.order = order
        self.connections = []
        self.threads = []
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(self.path))
        self.listener.listen()
        self.listener.settimeout(0.05)
        self.is_over = False
        self.accepting = threading.Thread(target=self._accept)
        self.accepting.start()

    def _accept(self):
        while True:
            is_last = self.is_over  # one more round accepts the connections that still wait after the script has ended
            try:
                connection, _ = self.listener.accept()
            except socket.timeout:
                if is_last:
                    return
                continue
            connection.settimeout(None)
            lines = []
            self.connections.append(lines)
            thread = threading.Thread(target=self._hear, args=(connection, lines))
            thread.start()
            self.threads.append(thread)

    def _hear(self, connection, lines):
        with connection, connection.makefile("r") as file, contextlib.suppress(ConnectionError):
            for line in file:  # ends with a ConnectionResetError if the script did not read an order
                lines.append(json.loads(line))
                if self.order is not None and lines[-1]["event"] == "step":
                    connection.sendall(self.order)

    def environment(self, **more):
        config = json.dumps(self.config)
        return clean_environment(GPUTUNE_SOCKET=str(self.path), GPUTUNE_CONFIG=config, GPUTUNE_TRIAL="3", **more)

    def install(self, **members):
        """Puts a copy of the package next to a `probe.json`, as for a probe with an adapter. Returns the folder of both."""
        place = self.folder / "python"
        shutil.copytree(PACKAGE / "gputune", place / "gputune")
        probe = {"version": 1, "socket": str(self.path), "trial": 3, "config": self.config, "adapter": "torch"}
        (place / "probe.json").write_text(json.dumps({**probe, "apply": {}, **members}))
        return place

    def events(self):
        """The events of each connection, without `bye`. Closes the socket, so the script must have ended."""
        self.close()
        return [[line for line in lines if line["event"] != "bye"] for lines in self.connections]

    def close(self):
        self.is_over = True
        self.accepting.join()
        for thread in self.threads:
            thread.join()
        self.listener.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if not self.is_over:
            self.close()
        shutil.rmtree(self.folder)


class OutsideAProbe(unittest.TestCase):
    def test_config_is_what_the_script_says(self):
        done = run("import gputune; print(gputune.config(), gputune.config(batch_size=8))", clean_environment())
        self.assertEqual(done.stdout.strip(), "{} {'batch_size': 8}")

    def test_nothing_happens(self):
        script = """
            import gputune
            for _ in range(3):
                with gputune.phase("data"):
                    pass
                gputune.step(samples=8, loss=0.5, accuracy=1)
            gputune.memory()
            gputune.done()
            print(gputune.is_probe())
        """
        done = run(script, clean_environment())
        self.assertEqual((done.stdout.strip(), done.stderr), ("False", ""))

    def test_arguments_are_not_looked_at(self):
        run("import gputune; gputune.step(samples=-1, loss='x'); gputune.memory(allocated='x')", clean_environment())

    def test_a_best_config_can_be_set_by_hand(self):
        environment = clean_environment(GPUTUNE_CONFIG='{"batch_size": 64}')
        done = run("import gputune; print(gputune.config(batch_size=8, workers=1), gputune.is_probe())", environment)
        self.assertEqual(done.stdout.strip(), "{'batch_size': 64, 'workers': 1} False")

    def test_a_config_that_is_no_object_is_named(self):
        for text in ("{", "[1]", "7"):
            done = run("import gputune; gputune.config()", clean_environment(GPUTUNE_CONFIG=text), check=False)
            self.assertIn("ValueError: the environment variable GPUTUNE_CONFIG", done.stderr)

    def test_heavy_modules_are_not_imported(self):
        script = """
            import sys
            before = set(sys.modules)
            import gputune
            gputune.config(); gputune.step(samples=1); gputune.memory()
            print(sorted(name for name in sys.modules if name in ("torch", "numpy", "multiprocessing")))
        """
        self.assertEqual(run(script, clean_environment()).stdout.strip(), "[]")


class InAProbe(unittest.TestCase):
    def test_steps_phases_and_memory_arrive_in_order(self):
        script = """
            import gputune
            assert gputune.is_probe()
            with gputune.phase("data"):
                pass
            with gputune.phase("augment"):
                pass
            gputune.memory(allocated=10, capacity=100)
            gputune.step(samples=8, loss=0.5, accuracy=1)
            gputune.step()
            gputune.done()
        """
        with Probe() as probe:
            run(script, probe.environment())
            (lines,) = probe.events()
        names = [line["event"] for line in lines]
        self.assertEqual(names, ["hello", "phase", "phase", "memory", "step", "step", "done"])
        hello, data, augment, memory, first, second, _ = lines
        self.assertEqual((hello["rank"], hello["ranks"]), (0, 1))
        self.assertTrue(hello["framework"].startswith("python 3."), hello)
        self.assertEqual((data["name"], augment["name"]), ("data_wait", "augment"))
        self.assertGreaterEqual(data["seconds"], 0)
        self.assertEqual(memory, {"event": "memory", "allocated": 10, "capacity": 100})
        self.assertEqual((first["samples"], first["loss"], first["metrics"]), (8, 0.5, {"accuracy": 1}))
        self.assertNotIn("samples", second)
        self.assertGreaterEqual(second["time"], first["time"])

    def test_an_orderly_end_is_told(self):
        for end, is_told in (("", True), ("raise ValueError", True), ("import os; os._exit(1)", False)):
            with self.subTest(end), Probe() as probe:
                run(f"import gputune; gputune.step(); {end}", probe.environment(), check=False)
                probe.events()
            self.assertEqual(probe.connections[0][-1] == {"event": "bye"}, is_told)

    def test_config_has_the_values_of_the_probe_over_the_defaults(self):
        with Probe({"batch_size": 64}) as probe:
            done = run("import gputune; print(gputune.config(batch_size=8, workers=0))", probe.environment())
        self.assertEqual(done.stdout.strip(), "{'batch_size': 64, 'workers': 0}")

    def test_probe_json_is_enough(self):
        with Probe({"batch_size": 16}) as probe:
            environment = clean_environment(PYTHONPATH=str(probe.install()))
            done = run("import gputune; gputune.step(samples=1); print(gputune.config())", environment)
            (lines,) = probe.events()
        self.assertEqual(done.stdout.strip(), "{'batch_size': 16}")
        self.assertEqual([line["event"] for line in lines], ["hello", "step"])
        self.assertIn("pid", lines[0])

    def test_stacks_are_written_on_sigusr2(self):
        script = """
            import gputune, os, signal, time
            def stuck_here():
                os.kill(os.getpid(), signal.SIGUSR2)
                time.sleep(0.2)
            gputune.step()
            stuck_here()
        """
        with Probe() as probe:
            place = probe.install()
            run(script, clean_environment(PYTHONPATH=str(place)))
            (lines,) = probe.events()
            self.assertIn("stuck_here", (place / f"stacks-{lines[0]['pid']}.txt").read_text())

    def test_a_signal_that_the_script_uses_is_left_alone(self):
        script = """
            import gputune, os, signal
            signal.signal(signal.SIGUSR2, lambda *_: print("mine"))
            gputune.step()
            os.kill(os.getpid(), signal.SIGUSR2)
        """
        with Probe() as probe:
            done = run(script, clean_environment(PYTHONPATH=str(probe.install())))
            (lines,) = probe.events()
        self.assertEqual(done.stdout.strip(), "mine")
        self.assertNotIn("pid", lines[0])

    def test_the_order_to_stop_ends_the_script_with_exit_code_0(self):
        script = """
            import gputune, time
            try:
                for step in range(10000):
                    try:
                        gputune.step(samples=1)
                    except Exception:
                        print("caught")
                    time.sleep(0.001)
                print("never stopped")
            finally:
                print("cleaned up")
        """
        with Probe(order=b'{"order":"dance"}\nnoise\n{"order":"stop"}\n') as probe:
            done = run(script, probe.environment())
            (lines,) = probe.events()
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "cleaned up"))
        self.assertEqual(lines[-1], {"event": "done"})

    def test_a_script_that_clings_to_life_is_ended(self):
        script = """
            import gputune, threading, time
            gputune._client.EXIT_TIME = 0.3
            threading.Thread(target=time.sleep, args=(60,)).start()
            print("flushed")
            while True:
                gputune.step(samples=1)
                time.sleep(0.001)
        """
        with Probe(order=b'{"order":"stop"}\n') as probe:
            done = run(script, probe.environment())
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "flushed"))

    def test_a_probe_that_has_gone_away_is_no_error(self):
        script = """
            import gputune, signal
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as some scripts do
            for _ in range(1000):
                gputune.step(samples=1)
            gputune.memory(allocated=1)
        """
        run(script, clean_environment(GPUTUNE_SOCKET="/nowhere/socket"))
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"{folder}/s")
            listener.listen()
            closing = threading.Thread(target=lambda: listener.accept()[0].close())
            closing.start()
            run(script, clean_environment(GPUTUNE_SOCKET=f"{folder}/s"))
            closing.join()

    def test_wrong_arguments_are_named(self):
        for call, message in {
            "step(samples=-1)": "ValueError: samples must be a number from 0, not -1",
            "step(samples=float('nan'))": "ValueError: samples must be a number from 0, not nan",
            "step(samples='8')": "TypeError: samples must be a number, not '8'",
            "step(samples=[8])": "TypeError: samples must be a number, not [8]",
            "step(loss=None, accuracy='x')": "TypeError: accuracy must be a number, not 'x'",
            "phase(7)": "TypeError: the name of a phase must be a string, not 7",
            "memory(allocated=1.5)": "TypeError: allocated must be a whole number of bytes, not 1.5",
            "memory(reserved=-1)": "ValueError: reserved must not be negative, not -1",
        }.items():
            with self.subTest(call), Probe() as probe:
                done = run(f"import gputune; gputune.{call}", probe.environment(), check=False)
                self.assertEqual(done.stderr.strip().splitlines()[-1], message)

    def test_a_loss_may_be_no_finite_number(self):
        with Probe() as probe:
            run("import gputune; gputune.step(loss=float('nan')); gputune.step(loss=float('inf'))", probe.environment())
            (lines,) = probe.events()
        self.assertNotEqual(lines[1]["loss"], lines[1]["loss"])
        self.assertEqual(lines[2]["loss"], float("inf"))

    def test_a_loss_on_a_device_is_read_now_and_then(self):
        script = """
            import gputune
            class Tensor:
                reads = 0
                def __float__(self):
                    Tensor.reads += 1
                    return 0.25
            for _ in range(1000):
                gputune.step(loss=Tensor())
            print(Tensor.reads)
        """
        with Probe() as probe:
            reads = int(run(script, probe.environment()).stdout)
            (lines,) = probe.events()
        self.assertTrue(16 <= reads < 200, reads)
        self.assertTrue(all(line["loss"] == 0.25 for line in lines[1:17]))

    def test_a_phase_that_fails_is_not_reported(self):
        script = """
            import gputune
            try:
                with gputune.phase("data"):
                    next(iter([]))
            except StopIteration:
                gputune.done()
        """
        with Probe() as probe:
            run(script, probe.environment())
            (lines,) = probe.events()
        self.assertEqual([line["event"] for line in lines], ["hello", "done"])

    def cuda_memory(self, more):
        """Runs the code `more` and six steps with a mock of `torch.cuda`. Returns the calls that change it, and the events."""
        script = f"""
            import sys, types
            calls = []
            cuda = types.SimpleNamespace(
                is_initialized=lambda: True, mem_get_info=lambda: (600, 1000), max_memory_allocated=lambda: 150,
                max_memory_reserved=lambda: 300, memory_reserved=lambda: 250, current_device=lambda: 1,
                memory_stats=lambda: {{"num_alloc_retries": 2}}, empty_cache=lambda: calls.append("empty"),
                reset_peak_memory_stats=lambda: calls.append("reset"))
            sys.modules["torch"] = types.SimpleNamespace(cuda=cuda, __version__="2.9.9")
            import gputune
            gputune._LOOK_TIME = 0.0
            {more}
            for _ in range(6):
                gputune.step(samples=1)
            print(calls)
        """
        with Probe() as probe:
            done = run(script, probe.environment())
            (lines,) = probe.events()
        return done.stdout.strip(), lines

    def test_memory_of_a_cuda_device_is_read_and_its_peaks_start_anew_once(self):
        calls, lines = self.cuda_memory("pass")
        self.assertEqual(calls, "['empty', 'reset']")
        self.assertEqual(lines[0]["framework"], "torch 2.9.9")
        peaks = {"device": 1, "allocated": 150, "reserved": 300, "other": 150, "capacity": 1000, "retries": 2}
        self.assertEqual(lines[1], {"event": "memory", **peaks, "goes_on": False})
        memory = [line for line in lines if line["event"] == "memory"]
        self.assertEqual([line["goes_on"] for line in memory], [False, True, True, True, False, True])

    def test_capacity_is_the_share_that_the_script_allows_itself(self):
        for share, capacity in ((0.5, 650), (1.0, 1000)):  # share * 1000, and 150 of other processes; at most 1000
            _, lines = self.cuda_memory(f"cuda.get_per_process_memory_fraction = lambda: {share}")
            self.assertEqual({line["capacity"] for line in lines if line["event"] == "memory"}, {capacity})

    def test_memory_that_the_hook_reports_is_neither_reported_nor_reset_again(self):
        calls, lines = self.cuda_memory("gputune._client.hook_reports_memory = True")
        self.assertEqual((calls, {line["event"] for line in lines}), ("[]", {"hello", "step"}))


class ManyProcesses(unittest.TestCase):
    def test_a_rank_says_which_it_is(self):
        for variables, expected in (
            ({"RANK": "1", "WORLD_SIZE": "2"}, (1, 2)),
            ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}, (3, 4)),
            ({"PMI_RANK": "1", "PMI_SIZE": "3"}, (1, 3)),
            ({"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "8"}, (2, 8)),
            ({"RANK": "0", "WORLD_SIZE": "1"}, (0, 1)),
            ({"RANK": "3"}, (0, 1)),  # without WORLD_SIZE it is not a launcher's RANK
            ({"RANK": "x", "WORLD_SIZE": "y"}, (0, 1)),
        ):
            with self.subTest(variables), Probe() as probe:
                run("import gputune; gputune.step()", probe.environment(**variables))
                (lines,) = probe.events()
            self.assertEqual((lines[0]["rank"], lines[0]["ranks"]), expected)

    def test_a_forked_process_has_a_connection_of_its_own(self):
        script = """
            import gputune, os
            gputune.step(samples=1)
            child = os.fork()
            gputune.step(samples=2 if child == 0 else 3)
            if child:
                os.waitpid(child, 0)
                gputune.step(samples=4)
        """
        with Probe() as probe:
            run(script, probe.environment())
            heard = probe.events()
        samples = sorted([line.get("samples") for line in lines if line["event"] == "step"] for lines in heard)
        self.assertEqual(samples, [[1, 3, 4], [2]])
        self.assertTrue(all(lines[0]["event"] == "hello" for lines in heard))

    def test_a_child_of_multiprocessing_says_that_it_ends(self):
        script = """
            import gputune, multiprocessing
            child = multiprocessing.get_context("fork").Process(target=gputune.step)
            child.start()
            child.join()
        """
        with Probe() as probe:
            run(script, probe.environment())
            probe.events()
        self.assertEqual([[line["event"] for line in lines] for lines in probe.connections], [["hello", "step", "bye"]])

    def test_what_a_training_process_starts_is_silent_unless_it_is_another_rank(self):
        for rank, heard in (("0", 1), ("1", 2)):
            script = f"""
                import gputune, os, subprocess, sys
                gputune.step(samples=1)
                child = "import gputune; gputune.step(samples=2)"
                subprocess.run([sys.executable, "-c", child], env={{**os.environ, "RANK": "{rank}"}}, check=True)
            """
            with self.subTest(rank), Probe() as probe:
                run(script, probe.environment(RANK="0", WORLD_SIZE="2"))
                self.assertEqual(len(probe.events()), heard)

    def test_workers_that_load_data_are_silent(self):
        for method in ("fork", "spawn", "forkserver"):
            script = f"""
                import gputune, multiprocessing

                def load(index):
                    with gputune.phase("data"):
                        gputune.step(samples=100)
                    return gputune.is_probe()

                if __name__ == "__main__":
                    gputune.step(samples=1)
                    with multiprocessing.get_context("{method}").Pool(1) as pool:
                        print(pool.map(load, [1]))
                    gputune.step(samples=2)
            """
            with self.subTest(method), Probe() as probe, tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "script.py"
                path.write_text(textwrap.dedent(script))
                command = [sys.executable, str(path)]
                done = subprocess.run(command, env=probe.environment(), capture_output=True, text=True, timeout=240)
                (lines,) = probe.events()
                self.assertEqual(done.stdout.strip(), "[False]", done.stderr)
                self.assertEqual([line.get("samples") for line in lines], [None, 1, 2])

    def test_threads_do_not_mix_their_lines(self):
        script = """
            import gputune, threading
            def steps():
                for _ in range(200):
                    gputune.step(samples=1, loss=0.5, text=1.0)
            threads = [threading.Thread(target=steps) for _ in range(8)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
        """
        with Probe() as probe:
            run(script, probe.environment())
            (lines,) = probe.events()
        self.assertEqual(sum(line["event"] == "step" for line in lines), 1600)


if __name__ == "__main__":
    unittest.main()
