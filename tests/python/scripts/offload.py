"""Trains a model whose embedding stays on the host. With OFFLOAD all parameters stay there, and the device only computes."""

import os

import torch
from torch import nn

DEVICE = os.environ.get("DEVICE", "cpu")
IS_OFFLOADED = "OFFLOAD" in os.environ
seen = set()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(16, 8)
        self.head = nn.Linear(8, 2).to("cpu" if IS_OFFLOADED else DEVICE)

    def forward(self, words, scale):
        inputs = self.words(words.cpu()).to(DEVICE)
        outputs = nn.functional.linear(inputs, self.head.weight.to(DEVICE), self.head.bias.to(DEVICE))
        seen.add(f"{outputs.device.type} {outputs.dtype}")
        return outputs * scale


torch.manual_seed(0)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(4):
    loss = model(torch.arange(16), torch.ones((), device=DEVICE)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("seen", sorted(seen))
