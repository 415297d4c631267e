"""Trains a model with batch normalisation. The loader has a BatchSampler as its sampler."""

import os

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

DEVICE = os.environ.get("DEVICE", "cpu")

data = TensorDataset(torch.randn(256, 4), torch.randn(256, 1))
loader = DataLoader(data, batch_size=None, sampler=BatchSampler(RandomSampler(data), 8, drop_last=True))
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)).to(DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(5):
    for inputs, targets in loader:
        inputs, targets = inputs.to(DEVICE), targets.to(DEVICE)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
