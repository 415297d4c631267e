"""An ordinary training script: a small network on random numbers, fed by a DataLoader. It knows no gputune.

usage: plain.py [--width N]
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=512)
arguments = parser.parse_args()

torch.manual_seed(0)
data = TensorDataset(torch.randn(32768, 64), torch.randint(0, 10, (32768,)))
loader = DataLoader(data, batch_size=32, shuffle=True, drop_last=True)
model = nn.Sequential(
    nn.Linear(64, arguments.width), nn.ReLU(),
    nn.Linear(arguments.width, arguments.width), nn.ReLU(),
    nn.Linear(arguments.width, arguments.width), nn.ReLU(),
    nn.Linear(arguments.width, 10),
)  # fmt: skip
optimizer = torch.optim.AdamW(model.parameters())
criterion = nn.CrossEntropyLoss()
for _ in range(1000):
    for inputs, targets in loader:
        optimizer.zero_grad()
        criterion(model(inputs), targets).backward()
        optimizer.step()
