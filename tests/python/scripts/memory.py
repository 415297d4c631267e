"""Takes memory of the allocator for each batch, in proportion to its size, and gives back that of the batch before.

By the environment, in GiB: TUNING is taken and given back in the first step, as by an autotuner, EARLY before training; TRIED is
tried in step TRY, and an error about it is caught; SECOND is taken on a second device; LEAK is kept in each step. FRACTION is what
the process may take.
FULL is taken in step TRY, and its error ends the script. ENGINE=1 raises cuDNN's error in step TRY, with CAUGHT=1 caught by the
script. OWN_STEPS=1 reports the steps by `gputune.step`. Prints the peak that the script reads.
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
    """A layer for which cuDNN finds no algorithm, once `fails` is set."""

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
    taken = torch.cuda.caching_allocator_alloc(len(inputs) * GIB // 8)  # before the last batch goes, as by `inputs = inputs.cuda()`
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
