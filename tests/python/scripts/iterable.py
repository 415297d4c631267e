"""An endless dataset, read by a subclass of DataLoader."""

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Numbers(IterableDataset):
    def __iter__(self):
        while True:
            yield {"inputs": torch.randn(4), "targets": torch.randn(1)}


class Batches(DataLoader):
    def __init__(self, data, **kwargs):
        super().__init__(data, **kwargs)


model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in Batches(Numbers(), batch_size=4):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(batch["inputs"]), batch["targets"]).backward()
    optimizer.step()
