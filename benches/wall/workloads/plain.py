"""scripts/plain.py as loadtune wants it: a `Workload`."""

import plain
import torch
from loadtune.workload import Workload
from torch.nn import functional as F


def train_step(model, optimizer, batch, device):
    images, labels = batch[0].to(device), batch[1].to(device)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss


def get_workload():
    return Workload(
        name="plain",
        make_dataset=lambda: plain.Slow(20_000, 2),
        make_model=plain.build_model,
        train_step=train_step,
        make_optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.01),
    )
