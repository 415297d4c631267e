"""`python -m gputune` runs the command `gputune`."""

import os
import sys

from gputune import _program

if __name__ == "__main__":
    try:
        program = _program.path()
    except _program.GputuneError as error:
        sys.exit(f"error: {error}")
    os.execv(program, [program, *sys.argv[1:]])
