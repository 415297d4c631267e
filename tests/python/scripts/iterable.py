"""An endless dataset, read by a subclass of DataLoader."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

DEVICE = os.environ.get("DEVICE", "cpu")


class Numbers(IterableDataset):
    def __iter__(self):
        while True:
            yield {"inputs": torch.randn(4), "targets": torch.randn(1)}


class Batches(DataLoader):
    def __init__(self, data, **kwargs):
        super().__init__(data, **kwargs)


model = nn.Linear(4, 1).to(DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in Batches(Numbers(), batch_size=4):
    batch = {name: tensor.to(DEVICE) for name, tensor in batch.items()}
    optimizer.zero_grad()
    nn.functional.mse_loss(model(batch["inputs"]), batch["targets"]).backward()
    optimizer.step()
