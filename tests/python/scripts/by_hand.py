"""A script without an optimizer: it changes the weights itself, and cuts its batches out of a tensor."""

import os

import torch
from torch import nn

DEVICE = os.environ.get("DEVICE", "cpu")

zeroes_by_hand = "ZERO_BY_HAND" in os.environ
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).to(DEVICE)
# If gputune finds no steps, it does not end the script, so the data is small.
samples = 4000 if zeroes_by_hand else 100_000
data = torch.randn(samples, 8).to(DEVICE)
for begin in range(0, samples, 2):
    if zeroes_by_hand:
        for parameter in model.parameters():
            parameter.grad = None
    else:
        model.zero_grad()
    batch = data[begin : begin + 2]
    loss = ((model(batch) - batch.sum(1, keepdim=True)) ** 2).mean()
    loss.backward()
    for parameter in model.parameters():
        parameter.data.add_(parameter.grad, alpha=-0.01)
