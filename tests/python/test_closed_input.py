"""Tests that a probe notes the line of a script that asks for input."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import termios
import tty
import unittest
from pathlib import Path

import harness


def asked_by(code: str) -> str:
    """Runs a script in a probe. Returns the noted place, such as `train.py:2`, or an empty string."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "python")
        home.mkdir()
        shutil.copytree(harness.PYTHON / "gputune", home / "gputune")
        shutil.copy(harness.PYTHON / "hook" / "sitecustomize.py", home)
        Path(folder, "train.py").write_text(code)
        environment = {**os.environ, "PYTHONPATH": str(home), "GPUTUNE_SOCKET": os.path.join(folder, "socket")}
        # Raw mode with VMIN = VTIME = 0: a read returns at once without data, as at the end of a file (`termios(3)`).
        controller, terminal = os.openpty()
        tty.setraw(terminal)
        modes = termios.tcgetattr(terminal)
        modes[6][termios.VMIN] = modes[6][termios.VTIME] = 0
        termios.tcsetattr(terminal, termios.TCSANOW, modes)
        try:
            subprocess.run(
                [sys.executable, "train.py"],
                cwd=folder,
                env=environment,
                stdin=terminal,
                capture_output=True,
                start_new_session=True,
                timeout=60,
            )
        finally:
            os.close(controller)
            os.close(terminal)
        note = home / "asked-for-input.txt"
        return note.read_text() if note.exists() else ""


class ClosedInput(unittest.TestCase):
    def test_each_way_to_ask_is_noted_with_its_line(self):
        for code in (
            "import sys\nsys.stdin.readline()\n",
            "import sys\nfor line in sys.stdin: pass\n",
            "import sys\nsys.stdin.read()\n",
            "import sys\nlist(sys.stdin)\n",
            "import sys\nsys.stdin.readlines()\n",
            "\ninput('Go on? ')\n",
            "import getpass\ngetpass.getpass()\n",
            "import fileinput\nnext(fileinput.input(), None)\n",
        ):
            with self.subTest(code):
                self.assertEqual(asked_by(code), "train.py:2")

    def test_click_and_rich_are_noted_with_the_line_that_called_them(self):
        for package, code in (
            ("click", "import click\nclick.prompt('Name')\n"),
            ("click", "import click\nclick.confirm('Go on?')\n"),
            ("click", "import click\nclick.prompt('Key', hide_input=True)\n"),
            ("rich", "from rich.prompt import Prompt\nPrompt.ask('Name')\n"),
            ("rich", "from rich.prompt import Confirm\nConfirm.ask('Go on?')\n"),
        ):
            with self.subTest(code), contextlib.suppress(ImportError):
                __import__(package)
                self.assertEqual(asked_by(code), "train.py:2")

    def test_a_script_that_asks_nothing_keeps_its_input(self):
        code = "import io, sys\nassert isinstance(sys.stdin, io.TextIOWrapper) and sys.stdin.isatty()\n"
        code += "assert (sys.stdin.mode, sys.stdin.name, sys.stdin.fileno()) == ('r', '<stdin>', 0), sys.stdin\n"
        code += "sys.stdin.read(0)\n"
        self.assertEqual(asked_by(code), "")
        self.assertEqual(asked_by(code + "sys.stdin.read(1)\n"), "train.py:5", "it came so far")


if __name__ == "__main__":
    unittest.main()
