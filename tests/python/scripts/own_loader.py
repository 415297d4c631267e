"""A subclass of DataLoader that calls none of its methods, as torchdata's StatefulDataLoader does, or that one (STATEFUL)."""

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
    """What it gives is no iterator of torch's."""

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
