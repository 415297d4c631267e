"""Steps a schedule of the learning rate that is made for a number of steps: of the kind that the first argument names."""

import argparse
import time

import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("kind")
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--total", type=int, default=1003)
args = parser.parse_args()

loader = DataLoader(TensorDataset(torch.randn(800, 4)), args.batch_size, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def transformers(total):
    from transformers import get_cosine_schedule_with_warmup

    return get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=10, num_training_steps=total)


def sequence(total):
    first = lr_scheduler.LinearLR(optimizer, total_iters=10)
    return lr_scheduler.SequentialLR(optimizer, [first, lr_scheduler.CosineAnnealingLR(optimizer, T_max=total)], [10])


KINDS = {
    "one_cycle": lambda total: lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=total),
    "cosine": lambda total: lr_scheduler.CosineAnnealingLR(optimizer, T_max=total),
    "linear": lambda total: lr_scheduler.LinearLR(optimizer, total_iters=total),
    "transformers": transformers,
    "sequence": sequence,
    "of_loader": lambda total: lr_scheduler.OneCycleLR(optimizer, 0.01, epochs=30, steps_per_epoch=len(loader)),
    "of_epochs": lambda total: lr_scheduler.CosineAnnealingLR(optimizer, T_max=30),
}
schedule = KINDS[args.kind](args.total)

for _ in range(30):
    for (inputs,) in loader:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        time.sleep(0.002 + 0.00002 * len(inputs))
        optimizer.step()
        if args.kind != "of_epochs":
            schedule.step()
    if args.kind == "of_epochs":
        schedule.step()
