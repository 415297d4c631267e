"""Ranks that exchange much or little. WRAP is ddp, fully_shard, fsdp1 or none; WIDTH that of the layers, ROWS of a batch.

OWN_HOOK registers a communication hook of the script's own, or the one of torch that it names. NORM has batch normalisation.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

WIDTH, ROWS = int(os.environ.get("WIDTH", "64")), int(os.environ.get("ROWS", "4"))


def own_hook(state, bucket):
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def wrapped(model):
    wrap = os.environ.get("WRAP", "ddp")
    if wrap == "ddp":
        model = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=10)
        name = os.environ.get("OWN_HOOK")
        if name is not None:
            from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

            model.register_comm_hook(None, getattr(default_hooks, name, own_hook))
    elif wrap == "fully_shard":
        from torch.distributed.fsdp import fully_shard

        mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        model = fully_shard(model, mesh=mesh)
    elif wrap == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel

        model = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
    return model


dist.init_process_group("gloo")
torch.set_num_threads(1)
data = TensorDataset(torch.randn(4096, WIDTH), torch.randn(4096, WIDTH))
loader = DataLoader(data, batch_size=ROWS, sampler=DistributedSampler(data))
layers = [nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)]
if "NORM" in os.environ:
    layers.insert(1, nn.BatchNorm1d(WIDTH))
model = wrapped(nn.Sequential(*layers))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(10_000):
    for inputs, targets in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
