"""One of several ranks: it cannot run without what a launcher sets."""
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(10, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
while True:
    optimizer.zero_grad()
    model(torch.randn(20, 10)).square().mean().backward()
    optimizer.step()
