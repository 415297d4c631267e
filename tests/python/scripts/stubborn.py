"""Catches all exceptions of each step, so also the exception by which gputune ends a script."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DEVICE = os.environ.get("DEVICE", "cpu")

loader = DataLoader(TensorDataset(torch.randn(1 << 20, 4)), 8, shuffle=True)
model = nn.Linear(4, 1).to(DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
caught = 0
for (inputs,) in loader:
    try:
        optimizer.zero_grad()
        model(inputs.to(DEVICE)).pow(2).mean().backward()
        optimizer.step()
    except:  # noqa: E722
        caught += 1
        print("caught", caught, flush=True)
