"""No loader is shuffled, and evaluation comes first, with gradients on."""

import torch
from torch import nn
from torch.utils.data import DataLoader as Loader
from torch.utils.data import TensorDataset

data = TensorDataset(torch.randn(96, 4), torch.randn(96, 1))
test_loader = Loader(data, batch_size=12)
loader = Loader(data, batch_size=8)
model = nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters())


def evaluate():
    sizes = {len(inputs) for inputs, _ in test_loader}
    print("evaluated", sorted(sizes), test_loader.num_workers)


evaluate()
for epoch in range(100):
    for inputs, targets in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    evaluate()
