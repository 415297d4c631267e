"""A script of examples/sick as loadtune wants it: a `Workload`. The script is named by the variable `SICK`, with its options."""

import os
import shlex

import sick
import torch
from loadtune.workload import Workload
from torch.nn import functional as F


def get_workload():
    args, loader, model, each_step = sick.parts_of(shlex.split(os.environ["SICK"]))
    torch.set_num_threads(args.threads)
    steps = 0

    def train_step(model, optimizer, batch, device):
        nonlocal steps
        inputs, labels = batch[0].to(device), batch[1].to(device)
        outputs = model(inputs)
        loss = F.cross_entropy(outputs, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        if each_step is not None:
            each_step(steps, model, outputs, labels, loss)
        return loss

    return Workload(
        name=os.environ["SICK"],
        make_dataset=lambda: loader.dataset,
        make_model=lambda: model,
        train_step=train_step,
        make_optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=1e-4),
        default_batch_size=args.batch_size,
        collate_fn=loader.collate_fn,
    )
