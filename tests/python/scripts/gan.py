"""Trains with two optimizers, which both step for each batch."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DEVICE = os.environ.get("DEVICE", "cpu")

loader = DataLoader(TensorDataset(torch.randn(256, 4)), 8, shuffle=True)
generator, critic = nn.Linear(2, 4).to(DEVICE), nn.Linear(4, 1).to(DEVICE)
steps = [torch.optim.Adam(module.parameters()) for module in (critic, generator)]
for epoch in range(20):
    for (real,) in loader:
        real = real.to(DEVICE)
        steps[0].zero_grad()
        fake = generator(torch.randn(len(real), 2).to(DEVICE))
        (critic(fake.detach()).mean() - critic(real).mean()).backward()
        steps[0].step()
        steps[1].zero_grad()
        (-critic(fake).mean()).backward()
        steps[1].step()
