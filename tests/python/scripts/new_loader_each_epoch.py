"""Makes a new DataLoader for each epoch.

KIND is `iterable`, `ordered`, `shuffled`, or `shards` (shuffled, with a new dataset for each epoch).
"""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

DEVICE = os.environ.get("DEVICE", "cpu")


class Numbers(IterableDataset):
    def __iter__(self):
        for _ in range(64):
            yield torch.randn(4), torch.randn(1)


kind = os.environ["KIND"]
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
model = nn.Linear(4, 1).to(DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(4):
    if kind == "shards":
        data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    loader = DataLoader(Numbers() if kind == "iterable" else data, 8, shuffle=kind in ("shuffled", "shards"))
    for inputs, targets in loader:
        inputs, targets = inputs.to(DEVICE), targets.to(DEVICE)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    with torch.no_grad():
        other = DataLoader(TensorDataset(torch.randn(30, 4)), 10)
        print("evaluated", sorted({len(inputs) for (inputs,) in other}))
