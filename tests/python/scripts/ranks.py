"""Ranks that exchange much or little.

Variables of the environment:

- WRAP: `ddp`, `fully_shard`, `fsdp1` or `none`
- WIDTH: width of the layers. ROWS: samples of a batch.
- REPEAT: how often each layer computes in a step, for more computation with the same gradients
- OWN_HOOK: registers the communication hook of torch with this name, or else a hook of the script
- CHECK: counts the exchanges of weights and gradients by torch in steps 11 to 20
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

WIDTH, ROWS, REPEAT = (int(os.environ.get(name, least)) for name, least in (("WIDTH", 64), ("ROWS", 4), ("REPEAT", 1)))


class Net(nn.Sequential):
    def forward(self, inputs):
        for layer in self:
            for _ in range(REPEAT):
                inputs = torch.tanh(layer(inputs))
        return inputs


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
model = wrapped(Net(*(nn.Linear(WIDTH, WIDTH) for _ in range(3))))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
counted = []
if "CHECK" in os.environ:
    from torch.distributed.fsdp._fully_shard import _fsdp_param_group as groups

    for name in ("foreach_all_gather", "foreach_reduce"):
        original = getattr(groups, name)
        setattr(groups, name, lambda *args, own=original, **kwargs: (counted.append(1), own(*args, **kwargs))[1])
steps = 0
for epoch in range(10_000):
    for inputs, targets in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        steps += 1
        if steps == 10:
            counted.clear()
        if steps == 20 and "CHECK" in os.environ and dist.get_rank() == 0:
            parameters = list(model.parameters())
            with_gradient = sum(parameter.grad is not None for parameter in parameters)
            exchanged, all_of = len(counted), len(parameters)
            told = f"exchanged {exchanged} times in the last ten steps, gradients for {with_gradient} of {all_of}"
            print(told, flush=True)
