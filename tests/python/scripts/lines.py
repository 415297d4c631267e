"""Computes for a long time at one place, which PLACE names.

Tests find the line of a place by the comment at the end of the line.
"""

import ctypes
import os
import time

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

PLACE = os.environ["PLACE"]
LARGE = torch.randn(600, 600)
#: Sleeps for some microseconds without releasing the interpreter's lock.
hold = ctypes.PyDLL(None).usleep


def burn(milliseconds):
    end = time.perf_counter() + milliseconds / 1000
    while time.perf_counter() < end:
        pass


class Data(Dataset):
    def __len__(self):
        # Epochs are short, because workers write their lines when they end. With a slow sampler they are long, so that the
        # start of workers takes a small share of the time.
        return 800 if PLACE == "sampler" else 64

    def __getitem__(self, index):
        # Rare and long: on a busy machine, a computation of a few milliseconds counts to the next call that releases the lock.
        if PLACE == "getitem" and index % 8 == 0:
            burn(32)  # getitem
        return torch.randn(8), torch.randn(1)


def collate(samples):
    if PLACE == "collate":
        burn(32)  # collate
    return [torch.stack(parts) for parts in zip(*samples)]


class Choosing(BatchSampler):
    """A batch sampler that takes long to choose a batch."""

    def __iter__(self):
        for batch in super().__iter__():
            if PLACE == "sampler":
                burn(32)  # sampler
            yield batch


def slowly(path, flags):
    burn(30)
    return os.open(path, flags)


class Slow:
    """A file object whose writes call `open`, which gputune watches."""

    def write(self, content):
        with open(os.devnull, "wb", opener=slowly) as file:
            return file.write(content)

    def flush(self):
        pass


def validate(model):
    model.eval()
    with torch.no_grad():
        for _ in range(5):
            model(torch.randn(100_000, 8))
            burn(16)
    model.train()


class Layer(nn.Module):
    """A layer that computes in torch or in Python, or does nothing."""

    def forward(self, inputs):
        if PLACE == "torch":
            torch.mm(LARGE, LARGE)
        if PLACE == "layer":
            burn(32)  # layer
        return inputs


def watch(module, inputs, outputs):
    if PLACE == "hook":
        burn(32)  # hook


def main():
    workers, start = int(os.environ.get("WORKERS", "0")), os.environ.get("START")
    data = Data()
    batches = Choosing(RandomSampler(data), 8, drop_last=False)
    loader = DataLoader(data, batch_sampler=batches, num_workers=workers, collate_fn=collate, multiprocessing_context=start)
    model = nn.Sequential(nn.Linear(8, 8), Layer(), nn.Linear(8, 1))
    model[0].register_forward_hook(watch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(1000):
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
            if PLACE == "loop":
                burn(32)  # loop
            if PLACE == "hold":
                hold(60_000)  # hold
            if PLACE == "open":
                open(os.devnull, "w", opener=slowly).close()  # open
            if PLACE == "save":
                torch.save({"state": torch.zeros(1 << 20), "of": list(range(100_000))}, Slow())  # save
            if PLACE == "validate":
                validate(model)  # validate


if __name__ == "__main__":
    main()
