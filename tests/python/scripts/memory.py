"""Allocates 1/8 GiB for each sample of a batch, and frees the memory of the previous batch. Prints the peak at the end.

Variables of the environment, sizes in GiB:

- TUNING: allocated and freed in the first step, as by an autotuner. EARLY: allocated and freed before training.
- TRIED: allocated and freed in step TRY; the script catches an error. FULL: allocated in step TRY; an error ends the script.
- SECOND: allocated on a second device. LEAK: allocated in each step and never freed.
- FRACTION: the share of the device that the process may reserve
- ENGINE: step TRY raises an error of cuDNN. CAUGHT: the script catches this error, prints it and exits.
- OWN_STEPS: reports steps with `gputune.step`
- STEPS: number of steps. PAUSE: seconds of a step.
"""

import os
import sys
import time
import traceback

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

GIB = 1 << 30
TRY = int(os.environ.get("TRY", "2"))


def take(name, device=0):
    return torch.cuda.caching_allocator_alloc(int(float(os.environ[name]) * GIB), device)


def attempt(name):
    try:
        torch.cuda.caching_allocator_delete(take(name))
    except torch.OutOfMemoryError:
        pass


class Net(nn.Linear):
    """A layer that raises cuDNN's error of a missing algorithm if `fails` is set."""

    fails = False

    def forward(self, inputs):
        if self.fails:
            raise RuntimeError("GET was unable to find an engine to execute this computation")
        return super().forward(inputs)


model = Net(4, 1).cuda()
if "FRACTION" in os.environ:
    torch.cuda.set_per_process_memory_fraction(float(os.environ["FRACTION"]), 0)
if "EARLY" in os.environ:
    attempt("EARLY")
if "SECOND" in os.environ:
    take("SECOND", 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
loader = DataLoader(TensorDataset(torch.zeros(1 << 17, 4)), 8)
held = None
steps = int(os.environ.get("STEPS", "40"))
for number, (inputs,) in enumerate(loader, 1):
    # The previous batch is freed only after this allocation, as by `inputs = inputs.cuda()`.
    taken = torch.cuda.caching_allocator_alloc(len(inputs) * GIB // 8)
    if held is not None:
        torch.cuda.caching_allocator_delete(held)
    held = taken
    if number == 1:
        torch.cuda.caching_allocator_delete(torch.cuda.caching_allocator_alloc(len(inputs) * GIB // 8))
    if number == 1 and "TUNING" in os.environ:
        torch.cuda.caching_allocator_delete(take("TUNING"))
    if "LEAK" in os.environ:
        take("LEAK")
    if number == TRY and "TRIED" in os.environ:
        attempt("TRIED")
    if number == TRY and "FULL" in os.environ:
        take("FULL")
    optimizer.zero_grad()
    model.fails = number == TRY and "ENGINE" in os.environ
    try:
        loss = model(inputs.cuda()).square().mean()
    except RuntimeError:
        if "CAUGHT" not in os.environ:
            raise
        traceback.print_exc()
        sys.exit(1)
    loss.backward()
    time.sleep(float(os.environ.get("PAUSE", "0.05")))
    optimizer.step()
    if "OWN_STEPS" in os.environ:
        import gputune

        gputune.step(samples=len(inputs))
    if number == steps:
        break
print("peak", torch.cuda.max_memory_allocated() / GIB)
