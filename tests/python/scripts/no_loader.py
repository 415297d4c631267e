"""Trains on random tensors, without a DataLoader."""

import os

import torch
from torch import nn

DEVICE = os.environ.get("DEVICE", "cpu")

model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1)).to(DEVICE)
optimizer = torch.optim.RMSprop(model.parameters())
for step in range(200):
    inputs = torch.randn(24, 4).to(DEVICE)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True)).backward()
    optimizer.step()
