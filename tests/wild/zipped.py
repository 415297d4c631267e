"""Trains with two loaders at once, one with labels and a larger one without."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(2000, 4), torch.randn(2000, 1))
labelled = DataLoader(data, batch_size=4, shuffle=True)
unlabelled = DataLoader(data, batch_size=12, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for (inputs, targets), (others, _) in zip(labelled, unlabelled):
    if optimizer.state_dict()["state"] == {}:
        print("sizes", len(inputs), len(others), flush=True)
    optimizer.zero_grad()
    (nn.functional.mse_loss(model(inputs), targets) + model(others).square().mean()).backward()
    optimizer.step()
