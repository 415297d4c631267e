"""Trains with an optimizer whose `step` gives the argument `closure` another name."""

import os

import torch
from torch import nn

DEVICE = os.environ.get("DEVICE", "cpu")


class Descent(torch.optim.SGD):
    def step(self, compute_loss=None):
        with torch.enable_grad():
            loss = compute_loss()
        super().step()
        return loss


model = nn.Linear(4, 1).to(DEVICE)
optimizer = Descent(model.parameters(), lr=0.01)
inputs = torch.randn(8, 4).to(DEVICE)


def compute_loss():
    optimizer.zero_grad()
    loss = model(inputs).pow(2).mean()
    loss.backward()
    return loss


for _ in range(30):
    optimizer.step(compute_loss)
print("trained")
