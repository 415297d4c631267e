"""A pool of spawned workers, each of which calls `gputune.step`."""

import multiprocessing

import gputune

if __name__ != "__main__":
    import torch  # noqa: F401  (before multiprocessing has set up this process)


def work(index):
    gputune.step(samples=100)
    return gputune.is_probe()


if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print("in a probe", pool.map(work, [1]), gputune.is_probe())
    gputune.step(samples=1)
