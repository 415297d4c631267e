"""Trains with slower steps after so many steps, as if layers were unfrozen."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
args = parser.parse_args()

loader = DataLoader(TensorDataset(torch.randn(64_000, 4)), args.batch_size, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
steps = 0
while True:
    for (inputs,) in loader:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        time.sleep((0.005 if steps < 120 else 0.015) + 0.0002 * len(inputs))
        optimizer.step()
        steps += 1
