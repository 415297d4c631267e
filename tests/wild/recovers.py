"""Trains with another batch size than it was given: in the way that the first argument names.

Batches above 24 samples do not fit.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("way")
parser.add_argument("--batch-size", type=int, default=16)
args = parser.parse_args()

DATA = TensorDataset(torch.randn(3000, 4))
FITS = 24


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 1)

    def forward(self, inputs):
        if args.way in ("halves", "retries", "accelerate", "skips", "own_batches") and len(inputs) > FITS:
            raise RuntimeError("CUDA out of memory. Tried to allocate 256.00 MiB")
        time.sleep(0.002 + 0.0001 * len(inputs))
        return self.linear(inputs)


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def step(inputs):
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()


def loader(size):
    return DataLoader(DATA, size, shuffle=True)


def halves(size):
    """Halves the batch size until an epoch works."""
    while True:
        try:
            for _ in range(100):
                for (inputs,) in loader(size):
                    step(inputs)
            return
        except RuntimeError as error:
            if "out of memory" not in str(error):
                raise
            size //= 2


def retries(size):
    """Keeps the loader that failed."""
    kept = []
    while True:
        kept.append(loader(size))
        batches = iter(kept[-1])
        try:
            step(next(batches)[0])
            break
        except RuntimeError:
            size //= 2
    for _ in range(100):
        for (inputs,) in batches:
            step(inputs)
        batches = iter(kept[-1])


def accelerate(size):
    from accelerate.utils import find_executable_batch_size

    @find_executable_batch_size(starting_batch_size=size)
    def train(batch_size):
        for _ in range(100):
            for (inputs,) in loader(batch_size):
                step(inputs)

    train()


def decides(size):
    """Limits the batch size without an error."""
    for _ in range(100):
        for (inputs,) in loader(min(size, FITS)):
            step(inputs)


def changes(size):
    """Makes another loader after some steps."""
    batches = iter(loader(size))
    for _ in range(60):
        step(next(batches)[0])
    for _ in range(100):
        for (inputs,) in loader(size // 2 if size > FITS else size):
            step(inputs)


def own_batches(size):
    """Has no loader."""
    (data,) = DATA.tensors
    for _ in range(100):
        at = 0
        while at + size <= len(data):
            try:
                step(data[at : at + size])
                at += size
            except RuntimeError:
                size //= 2


def healthy(size):
    """Evaluates with another batch size, has a smaller last batch, and accumulates gradients."""
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    held_out = DataLoader(TensorDataset(torch.randn(128, 4)), 64)
    for _ in range(100):
        for number, (inputs,) in enumerate(loader(size)):
            (model(inputs).square().mean() / 2).backward()
            if number % 2:
                optimizer.step()
                optimizer.zero_grad()
        schedule.step()
        model.eval()
        with torch.no_grad():
            for (inputs,) in held_out:
                model(inputs)
        model.train()


def skips(size):
    """Leaves out every third batch, for which memory runs out."""
    for _ in range(100):
        for number, (inputs,) in enumerate(loader(size)):
            try:
                step(torch.cat([inputs] * 2) if number % 3 == 0 else inputs)
            except RuntimeError:
                optimizer.zero_grad()


globals()[args.way](args.batch_size)
