"""A training script that knows nothing of gputune and fails in the way that its first argument names."""

import mmap
import os
import resource
import signal
import sys
import tempfile
import time

import torch
from torch.utils.data import DataLoader, Dataset

FAILURE = sys.argv[1]
#: The sample at which the dataset fails: well behind the first steps.
BAD_SAMPLE = 200


def bus_error():
    """Reads from a mapped file that was truncated meanwhile."""
    with tempfile.TemporaryFile() as file:
        file.truncate(1 << 16)
        view = mmap.mmap(file.fileno(), 1 << 16)
        file.truncate(0)
        return view[0]


def join_group(folder):
    with open(os.path.join(folder, "cgroup.procs"), "w") as procs:
        procs.write(str(os.getpid()))


def fail():
    """What the dataset does at the bad sample, once the training loop waits for it."""
    time.sleep(1)
    if FAILURE == "worker-killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if FAILURE == "worker-raises":
        raise ValueError("sample 200 is no picture")
    if FAILURE == "worker-bus-error":
        bus_error()
    if FAILURE == "worker-out-of-memory":
        join_group(sys.argv[2])
        bytearray(1 << 30)
    if FAILURE == "data-set-hangs":
        time.sleep(600)


class Samples(Dataset):
    def __init__(self):
        self.size = 1 << 20 if FAILURE == "shared-memory-full" else 16
        if FAILURE == "worker-does-not-start":
            self.transform = lambda sample: sample

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        if index == BAD_SAMPLE:
            fail()
        return torch.ones(self.size)


def main():
    workers = 0 if FAILURE == "data-set-hangs-in-the-main-process" else 1
    context = "spawn" if FAILURE == "worker-does-not-start" else None
    loader = DataLoader(Samples(), batch_size=8, num_workers=workers, multiprocessing_context=context)
    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, batch in enumerate(loader):
        loss = model(batch[:, :16]).square().mean()
        if FAILURE == "loss-is-nan" and step == 5:
            loss = loss * float("nan")
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.01)
        if FAILURE == "hangs" and step == 5:
            time.sleep(600)
        if FAILURE == "allocation-too-large" and step == 5:
            pages = int(open("/proc/self/statm").read().split()[0])
            limit = pages * resource.getpagesize() + (64 << 20)
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            torch.empty(1 << 30)


if __name__ == "__main__":
    main()
