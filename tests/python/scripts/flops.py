"""Trains layers whose operations are easy to count. An epoch has only three steps, so workers start often.

Variables of the environment:

- KIND: `linear`, `convolution` or `attention`
- WORKERS: loader workers. EVALUATE: evaluates after each step. COMPILED: compiles the model.
- WITHOUT: torch has no formulas of operations
"""

import os
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DEVICE, KIND = os.environ.get("DEVICE", "cpu"), os.environ.get("KIND", "linear")


if os.environ.get("WITHOUT"):
    sys.modules["torch.utils.flop_counter"] = None  # as in a version of torch without this module


class Attention(nn.Module):
    def forward(self, x):
        parts = x.view(-1, 2, 8, 16).transpose(1, 2)
        return nn.functional.scaled_dot_product_attention(parts, parts, parts).flatten(1)


KINDS = {
    "linear": lambda: nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)),
    "convolution": lambda: nn.Sequential(nn.Unflatten(1, (2, 4, 4)), nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(12, 8)),
    "attention": lambda: nn.Sequential(nn.Linear(32, 256), Attention(), nn.Linear(256, 8)),
}


def main():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(48, 32), torch.randint(0, 8, (48,)))
    loader = DataLoader(data, 16, shuffle=True, num_workers=int(os.environ.get("WORKERS", "0")))
    model = KINDS[KIND]().to(DEVICE)
    trained = torch.compile(model, backend="eager") if os.environ.get("COMPILED") else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(200):
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(trained(inputs.to(DEVICE)), labels.to(DEVICE))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if os.environ.get("EVALUATE"):
                model.eval()
                with torch.no_grad():
                    model(inputs.to(DEVICE))
                model.train()
    print("trained")


if __name__ == "__main__":
    main()
