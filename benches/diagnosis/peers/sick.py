"""Takes a script of examples/sick apart for tools that need more than a command: its options, its loader, its model."""

import pathlib
import runpy
import sys

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "examples/sick"


def run_with(train, words):
    """Runs a script with another training loop than that of `common.py`."""
    if str(FOLDER) not in sys.path:
        sys.path.insert(0, str(FOLDER))
    import common

    common.train = train
    sys.argv = [str(FOLDER / words[0]), *words[1:]]
    runpy.run_path(sys.argv[0], run_name="__main__")


def parts_of(words):
    """The options, the loader, the model and what is done after each step."""
    found = []
    run_with(lambda args, loader, model, each_step=None: found.append((args, loader, model, each_step)), words)
    return found[0]
