"""Prints the median CPU time of a step in microseconds. The model is so small that the step computes almost nothing."""

import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(4096, 4), torch.randn(4096, 1))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(20)), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
times = []
for epoch in range(int(os.environ.get("EPOCHS", "4"))):
    for inputs, targets in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        times.append(time.thread_time())
steps = sorted(end - begin for begin, end in zip(times[100:], times[101:]))
print("microseconds", round(1e6 * steps[len(steps) // 2], 1))
