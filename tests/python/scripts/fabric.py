"""Trains with Lightning Fabric. Its wrapper passes attributes that are set on it to the inner module."""

import torch
from lightning.fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

fabric = Fabric(accelerator="cpu", devices=1)
fabric.launch()
loader = DataLoader(TensorDataset(torch.randn(2000, 8), torch.randn(2000, 1)), batch_size=4, shuffle=True)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.01))
loader = fabric.setup_dataloaders(loader)
for inputs, targets in loader:
    optimizer.zero_grad()
    fabric.backward(nn.functional.mse_loss(model(inputs), targets))
    optimizer.step()
