"""A plain training script: a small CNN, evaluation after each epoch."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DEVICE = os.environ.get("DEVICE", "cpu")

torch.manual_seed(1)
train = TensorDataset(torch.randn(256, 3, 8, 8), torch.randint(0, 4, (256,)))
test = TensorDataset(torch.randn(64, 3, 8, 8), torch.randint(0, 4, (64,)))
loader = DataLoader(train, batch_size=8, shuffle=True)
test_loader = DataLoader(test, batch_size=16)
model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 4)).to(DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(int(os.environ.get("EPOCHS", "200"))):
    model.train()
    for images, labels in loader:
        images, labels = images.to(DEVICE), labels.to(DEVICE)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        sizes = {len(images) for images, _ in test_loader}
        for images, labels in test_loader:
            model(images.to(DEVICE))
    print("evaluated", sorted(sizes), len(loader))
