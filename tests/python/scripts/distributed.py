"""Data-parallel training.

FAIL is the number of a rank that raises an error. SPAWN is a file by which ranks that this script spawns find each other; without
it torchrun starts the ranks. BARRIER adds a barrier after each step.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def train(rank=None, ranks=None):
    if rank is None:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", rank=rank, world_size=ranks, init_method=f"file://{os.environ['SPAWN']}")
    data = TensorDataset(torch.randn(512, 4), torch.randn(512, 1))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(100):
        sampler.set_epoch(epoch)
        for number, (inputs, targets) in enumerate(loader):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
            if "BARRIER" in os.environ:
                dist.barrier()
            if number == 3 and os.environ.get("FAIL") == str(dist.get_rank()):
                raise ValueError("rank is out of order")


if __name__ == "__main__":
    if "SPAWN" in os.environ:
        torch.multiprocessing.spawn(train, args=(2,), nprocs=2)
    else:
        train()
