"""Trains with a loader that keeps one iterator for all epochs: it never passes through `DataLoader.__iter__`."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Repeated:
    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        while True:
            yield from self.sampler


class Endless(DataLoader):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        object.__setattr__(self, "batch_sampler", Repeated(self.batch_sampler))
        self.batches = None

    def __len__(self):
        return len(self.batch_sampler.sampler)

    def __iter__(self):
        if self.batches is None:
            self.batches = self._get_iterator()
        for _ in range(len(self)):
            yield next(self.batches)


model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = Endless(TensorDataset(torch.randn(64, 4)), batch_size=8, shuffle=True)
for _ in range(100):
    for (inputs,) in loader:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
