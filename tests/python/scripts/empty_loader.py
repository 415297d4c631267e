"""Before training, iterates with gradients on over a loader for evaluation that has no batch.

With ALONE the training loader itself has no batch. COUNT is the number of samples of the loader without a batch. SHUFFLE
shuffles, EPOCHS is the number of epochs, and KILLED ends the process without exit handlers.
"""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DEVICE = os.environ.get("DEVICE", "cpu")
COUNT = int(os.environ.get("COUNT", "5"))


def make_loader(count, size):
    data = TensorDataset(torch.randn(count, 4), torch.randn(count, 1))
    return DataLoader(data, batch_size=size, shuffle="SHUFFLE" in os.environ, drop_last=COUNT > 0)


empty = make_loader(COUNT, 12)
loader = empty if "ALONE" in os.environ else make_loader(96, 8)
model = nn.Linear(4, 1).to(DEVICE)
optimizer = torch.optim.Adam(model.parameters())
print("evaluated", [len(inputs) for inputs, _ in empty])
for epoch in range(int(os.environ.get("EPOCHS", "20"))):
    for inputs, targets in loader:
        inputs, targets = inputs.to(DEVICE), targets.to(DEVICE)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
if "KILLED" in os.environ:
    os._exit(0)
