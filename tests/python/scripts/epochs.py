"""Trains without end, and prints the indices of the samples in each batch of an epoch.

Variables of the environment:

- LENGTH: samples of the dataset
- SAMPLER: the batch sampler: `sized` (with a length), `wrapped` (around torch's), or any other value (without a length)
- TWICE: a second loader next to the first. PICTURE: looks at a batch of the loader in each step.
- MODEL=scaled: batch normalisation. REGION: autocast. COMPILE: compiles the model.
"""

import os
import time
from contextlib import nullcontext

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

DEVICE = os.environ.get("DEVICE", "cpu")


class Numbers(Dataset):
    def __len__(self):
        return int(os.environ.get("LENGTH", "6400"))

    def __getitem__(self, index):
        return torch.full((4,), float(index % 7)), index


class Pairs:
    """A batch sampler that is not a `BatchSampler` of torch, and has no length."""

    def __init__(self, data, batch_size):
        self.sampler, self.batch_size = RandomSampler(data), batch_size

    def __iter__(self):
        batch = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []


class Sized(Pairs):
    """A batch sampler with a length."""

    def __len__(self):
        return len(self.sampler) // self.batch_size


def zipped(loader):
    """The batches of the loader. With TWICE a second loader gives a batch in each step, which is not used."""
    if beside is None:
        return loader
    return (first for first, _ in zip(loader, beside))


torch.manual_seed(0)
data = Numbers()
class Wrapped:
    """A batch sampler that wraps another batch sampler, as in Accelerate."""

    def __init__(self, inner):
        self.batch_sampler = inner

    def __iter__(self):
        return iter(self.batch_sampler)


if os.environ.get("SAMPLER") == "wrapped":
    loader = DataLoader(data, batch_sampler=Wrapped(BatchSampler(RandomSampler(data), 8, drop_last=True)))
elif os.environ.get("SAMPLER"):
    kind = Sized if os.environ["SAMPLER"] == "sized" else Pairs
    loader = DataLoader(data, batch_sampler=kind(data, 8))
else:
    loader = DataLoader(data, 8, shuffle=True, drop_last=True)
beside = DataLoader(data, 8, shuffle=True) if os.environ.get("TWICE") else None
layers = [nn.BatchNorm1d(4)] if os.environ.get("MODEL") == "scaled" else []
model = nn.Sequential(*layers, nn.Linear(4, 1)).to(DEVICE)
if os.environ.get("COMPILE"):
    model = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
region = torch.autocast(DEVICE, dtype=torch.bfloat16) if os.environ.get("REGION") else nullcontext()
while True:
    seen = []
    try:
        for inputs, indices in zipped(loader):
            if os.environ.get("PICTURE"):
                next(iter(loader))  # as a script does to look at a batch
            seen.append(indices.tolist())
            optimizer.zero_grad()
            with region:
                outputs = model(inputs.to(DEVICE))
            outputs.float().square().mean().backward()
            time.sleep(0.01)
            optimizer.step()
    finally:
        print("epoch", *(",".join(map(str, batch)) for batch in seen), flush=True)
