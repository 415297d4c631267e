"""scripts/images.py as loadtune wants it: a `Workload`."""

import images
import torch
from loadtune.workload import Workload
from torch.nn import functional as F


def train_step(model, optimizer, batch, device):
    pictures, labels = batch[0].to(device), batch[1].to(device)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(pictures), labels)
    loss.backward()
    optimizer.step()
    return loss


def get_workload():
    return Workload(
        name="images",
        make_dataset=lambda: images.Pictures("pictures", 20_000),
        make_model=images.build_model,
        train_step=train_step,
        make_optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.01),
    )
