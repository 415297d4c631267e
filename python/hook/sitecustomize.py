"""Brings gputune's hook into this interpreter, then runs the `sitecustomize` that this file hides.

Python imports one `sitecustomize` only, the first on its path. Ours comes first in a probe, and ends with the import of
the next one, whose errors Python shows as ever.
"""

import os
import sys


def _guard_writes():
    from gputune._hook import writes

    writes.install_or_end()


def _replace_files():
    if "GPUTUNE_REPLACED_FILES" in os.environ:
        from gputune._hook import replaced_files

        replaced_files.install()


def _silence_trackers():
    try:
        from gputune._hook import silence

        silence.install()
    except Exception:
        pass


def _watch_input():
    try:
        from gputune._hook import closed_input

        closed_input.install()
    except Exception:
        pass


def _await_torch():
    try:
        from gputune._hook import entry

        entry.await_torch()
    except Exception:  # the script runs without us; gputune notices that nothing is reported
        pass


def _run_hidden():
    here = os.path.dirname(os.path.abspath(__file__))
    ours = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) == here]
    this = sys.modules.pop("sitecustomize", None)
    sys.path[:] = [entry for entry in sys.path if entry not in ours]
    try:
        import sitecustomize  # noqa: F401  (the user's own, or the distribution's)
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.path[:0] = ours
        if this is not None:
            sys.modules.setdefault("sitecustomize", this)


_guard_writes()
_replace_files()
_silence_trackers()
_watch_input()
_await_torch()
_run_hidden()
