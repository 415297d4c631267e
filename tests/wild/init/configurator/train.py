"""Its settings are the names of this module; a line sets them as --name=value, a file of settings comes first.

Run on several devices: torchrun --nproc_per_node=4 train.py
"""
import os
from contextlib import nullcontext

import torch
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel

accumulation_steps = 2 * 2  # batches of a step
batch_size = 16  # rows
width = 32
steps = 10_000_000
device = "cpu"
dtype = "bfloat16" if torch.cuda.is_available() else "float16"
compile = False
exec(open("settings.py").read())

is_many = int(os.environ.get("RANK", -1)) != -1
if is_many:
    init_process_group("gloo")
    accumulation_steps //= int(os.environ["WORLD_SIZE"])
rows = torch.randn(4096, width)
model = torch.nn.Sequential(torch.nn.Linear(width, 128), torch.nn.ReLU(), torch.nn.Linear(128, width))
if is_many:
    model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
region = nullcontext() if device == "cpu" else torch.autocast(device, dtype=getattr(torch, dtype))


def draw():
    """A poor man's DataLoader."""
    return rows[torch.randint(0, len(rows), (batch_size,))]


for step in range(steps):
    for _ in range(accumulation_steps):
        batch = draw()
        with region:
            loss = torch.nn.functional.mse_loss(model(batch), batch) / accumulation_steps
        loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
if is_many:
    destroy_process_group()
