"""Runs a script, counts the optimizer's steps in a window of time, prints their rate, and ends the process.

    python counted.py WARM_UP WINDOW SCRIPT [ARGUMENT...]

Both in seconds. The warm-up begins with the end of the first step; the window begins and ends with the end of a step.
"""

import os
import runpy
import sys
import time

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook


class Counter:
    """What is called after each step."""

    def __init__(self, warm_up, window):
        self.warm_up, self.window = warm_up, window
        self.first = self.began = None
        self.steps = 0

    def __call__(self, *_):
        now = time.perf_counter()
        if self.first is None:
            self.first = now
        if self.began is not None:
            self.steps += 1
            if now - self.began >= self.window:
                self.end()
        elif now - self.first >= self.warm_up:
            self.began = finished()

    def end(self):
        print(f"\nsteps_per_second {self.steps / (finished() - self.began)}", flush=True)
        os._exit(0)  # the rest of the script is of no use


def finished():
    """The time when the device has done what it was given."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()


if __name__ == "__main__":
    register_optimizer_step_post_hook(Counter(float(sys.argv[1]), float(sys.argv[2])))
    script = sys.argv[3]
    sys.argv = sys.argv[3:]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")
