"""Trains with a subclass of DataLoader that does not call `__init__` and `__iter__` of DataLoader.

The StatefulDataLoader of torchdata is such a class; with STATEFUL the script uses it.
"""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DEVICE = os.environ.get("DEVICE", "cpu")


class Own(DataLoader):
    def __init__(self, dataset, batch_size, shuffle):
        self.__dict__.update(vars(DataLoader(dataset, batch_size, shuffle=shuffle)))

    def __iter__(self):
        self.started = self._get_iterator()
        return self.started


class Lists(DataLoader):
    """A loader whose iterator is not an iterator of torch."""

    def __iter__(self):
        return iter([torch.ones(1)])


if "STATEFUL" in os.environ:
    from torchdata.stateful_dataloader import StatefulDataLoader as Own
loader = Own(TensorDataset(torch.randn(256, 4), torch.randn(256, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1).to(DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in Lists(TensorDataset(torch.randn(4, 4))):
    pass
for epoch in range(4):
    for inputs, targets in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs.to(DEVICE)), targets.to(DEVICE)).backward()
        optimizer.step()
print("batches", len(loader))
