"""Runs the named tests like `python -m unittest -v`. On SIGINT it prints the reasons of the failures until then, and ends."""

from __future__ import annotations

import os
import signal
import sys
import unittest

#: Begins the line with the test that ran when SIGINT came.
RAN = "at the limit ran:"


class Result(unittest.TextTestResult):
    """unittest prints reasons only after the last test, which a process at its limit does not reach."""

    _running = ""

    def startTestRun(self) -> None:
        super().startTestRun()
        signal.signal(signal.SIGINT, self._end)

    def startTest(self, test: unittest.TestCase) -> None:
        self._running = test.id()
        super().startTest(test)

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        self._running = ""

    def _end(self, *_: object) -> None:
        self.printErrors()
        if self._running:
            self.stream.writeln(f"{RAN} {self._running}")
        self.stream.flush()
        os._exit(1)


if __name__ == "__main__":
    sys.path[0] = os.getcwd()  # as with `-m`: modules of this folder hide no module of the tests
    unittest.main(module=None, testRunner=unittest.TextTestRunner(verbosity=2, resultclass=Result))
