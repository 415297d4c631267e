"""Trains on batches of a loader that is not a DataLoader. LOADER names the loader.

Tests find a line by the comment at its end.
"""

import atexit
import os
import queue
import sys
import threading
import time
from contextlib import suppress

import torch
from torch import nn

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "site-packages"))

from fastloader import FastLoader, Pipeline  # noqa: E402
from progressbar import progressbar  # noqa: E402

DEVICE = os.environ.get("DEVICE", "cpu")
KIND = os.environ["LOADER"]


def burn(milliseconds):
    end = time.perf_counter() + milliseconds / 1000
    while time.perf_counter() < end:
        pass


def decode(index):
    burn(15)  # decode
    return torch.full((8, 8), float(index)), torch.randn(8, 1)


def batches(count):
    for index in range(count):
        burn(15)  # generator
        yield torch.full((8, 8), float(index)), torch.randn(8, 1)


class Prefetcher:
    """Fetches batches in a thread, which ends before the interpreter."""

    def __init__(self, loader):
        self.loader, self.queue, self.is_over = loader, queue.Queue(2), False
        self.thread = threading.Thread(target=self.fetch, daemon=True)
        self.thread.start()
        atexit.register(self.close)

    def fetch(self):
        for batch in self.loader:
            if self.is_over:
                return
            self.queue.put(batch)

    def close(self):
        self.is_over = True
        with suppress(queue.Empty):
            while True:
                self.queue.get_nowait()  # the thread may wait for room
        self.thread.join()

    def __iter__(self):
        return self

    def __next__(self):
        return self.queue.get()  # threads


def make():
    loader = FastLoader(0.015)
    loaders = {
        "package": lambda: loader,
        "pipeline": lambda: Pipeline(iter(range(1000)), decode),
        "threads": lambda: Prefetcher(loader),
        "map": lambda: map(decode, range(1000)),
    }
    return loaders[KIND]()


model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1)).to(DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)


def step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs.to(DEVICE)), targets.to(DEVICE))
    loss.backward()
    optimizer.step()
    return loss


def warm_up():
    for _ in range(5):
        yield step((torch.randn(8, 8), torch.randn(8, 1)))


def train():
    for _ in range(1000):
        burn(15)  # trains
        yield step((torch.randn(8, 8), torch.randn(8, 1)))


def main():
    if KIND == "trains":
        for generator in (warm_up(), train()):
            for loss in generator:
                float(loss)
    elif KIND == "next":
        loader = FastLoader(0.015)
        for _ in range(1000):
            step(next(loader))  # next
    elif KIND == "progress":
        loader = FastLoader(0.015)
        for _, batch in enumerate(progressbar(loader)):  # progress
            step(batch)
    elif KIND == "generator":
        for batch in batches(1000):
            step(batch)
    else:
        loader = make()
        for batch in loader:  # package
            step(batch)


main()
