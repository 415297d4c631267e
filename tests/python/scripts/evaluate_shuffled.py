"""Evaluates with loaders that are shuffled like the training loader.

FIRST also evaluates before training. LATE makes a new loader for each evaluation.
"""

import os

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

DEVICE = os.environ.get("DEVICE", "cpu")

data = TensorDataset(torch.randn(96, 4), torch.randn(96, 1))
held_out = TensorDataset(torch.randn(48, 4), torch.randn(48, 1))
loader = DataLoader(data, batch_size=8, shuffle=True)
batches = BatchSampler(RandomSampler(held_out), batch_size=24, drop_last=False)
held_out_loaders = [DataLoader(held_out, batch_size=12, shuffle=True), DataLoader(held_out, batch_sampler=batches)]
model = nn.Linear(4, 1).to(DEVICE)
optimizer = torch.optim.Adam(model.parameters())


@torch.no_grad()
def evaluate(name):
    loaders = [DataLoader(held_out, batch_size=12, shuffle=True)] if "LATE" in os.environ else held_out_loaders
    for other in loaders:
        sizes = {len(inputs) for inputs, _ in other}
        print(name, sorted(sizes), other.batch_size, other.num_workers, other.persistent_workers, len(other))


if "FIRST" in os.environ:
    evaluate("before")
for epoch in range(20):
    for inputs, targets in loader:
        inputs, targets = inputs.to(DEVICE), targets.to(DEVICE)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    evaluate("after")
