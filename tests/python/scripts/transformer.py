"""Trains blocks with attention, with a scheduler of the learning rate.

Variables of the environment:

- OPTIMIZER: a class of `torch.optim`. EPOCHS: number of epochs.
- COMPILE: compiles the model, with the backend BACKEND. MODE: compiles the model in this mode.
- SEEN: prints the argument `dynamic` of each compilation
- PARTS: backward passes of a step
- ATTENTION_FAILS: the message of an error that attention raises
"""

import copy
import os
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DEVICE = os.environ.get("DEVICE", "cpu")

torch.manual_seed(3)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)

    def forward(self, inputs):
        queries, keys, values = self.mix(inputs).view(*inputs.shape[:2], 2, 24).transpose(1, 2).chunk(3, -1)
        if "ATTENTION_FAILS" in os.environ:
            raise RuntimeError(os.environ["ATTENTION_FAILS"])
        attended = nn.functional.scaled_dot_product_attention(queries, keys, values)
        return inputs + self.out(attended.transpose(1, 2).reshape(inputs.shape))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(16, 1)

    def forward(self, inputs):
        for block in self.blocks:
            inputs = block(inputs)
        return self.head(inputs.mean(1))


if os.environ.get("SEEN"):  # prints the argument that reaches torch
    import torch._dynamo

    optimize = torch._dynamo.optimize

    def seen(*args, **kwargs):
        print("dynamic", kwargs.get("dynamic"))
        return optimize(*args, **kwargs)

    torch._dynamo.optimize = seen

data = TensorDataset(torch.randn(64, 6, 16), torch.randn(64, 1))
loader = DataLoader(data, 8, shuffle=True, generator=torch.Generator().manual_seed(2))
model = Net().to(DEVICE)
if os.environ.get("MODE"):
    model = torch.compile(model, mode=os.environ["MODE"])
elif os.environ.get("COMPILE"):
    model = torch.compile(model, backend=os.environ.get("BACKEND", "inductor"))
optimizer = getattr(torch.optim, os.environ.get("OPTIMIZER", "AdamW"))(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
for epoch in range(int(os.environ.get("EPOCHS", "2"))):
    for inputs, targets in loader:
        inputs, targets = inputs.to(DEVICE), targets.to(DEVICE)
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        for _ in range(int(os.environ.get("PARTS", "1")) - 1):
            nn.functional.mse_loss(model(inputs), targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    average = copy.deepcopy(model)
print("weights", repr(sum(float(parameter.detach().double().abs().sum()) for parameter in model.parameters())))
print("rate", scheduler.get_last_lr(), "compiled", type(model).__name__, "batches", len(loader))
dynamo = sys.modules.get("torch._dynamo.utils")
print("frames", 0 if dynamo is None else dynamo.counters["frames"]["ok"])
