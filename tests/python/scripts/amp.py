"""Trains with mixed precision of its own.

Variables of the environment:

- REGION=0: autocast is off
- SCALER: `1` for a GradScaler, `sharded` for the ShardedGradScaler of FSDP
- CLIP: clips gradients with `clip_grad_norm_` (`1`), by their total norm (`total`), or with FSDP (`sharded`)
- FSDP: FSDP shards a part of the model
- FUSED=1: a fused optimizer
- OVERFLOW=1: the gradients of the third step are infinite
"""

import gc
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DEVICE = os.environ.get("DEVICE", "cpu")

torch.manual_seed(1)
data = TensorDataset(torch.randn(256, 16), torch.randn(256, 1))
loader = DataLoader(data, 8, shuffle=True, generator=torch.Generator().manual_seed(2))
seen = set()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 16)
        self.outer = nn.Linear(16, 1)

    def forward(self, inputs):
        hidden = self.inner(inputs)
        seen.add(str(hidden.dtype))
        with torch.autocast(DEVICE, enabled=False):
            assert (hidden.float() @ hidden.float().T).dtype == torch.float32
        return self.outer(hidden)


model = Net().to(DEVICE)
if os.environ.get("FSDP"):
    from torch import distributed
    from torch.distributed.fsdp import FullyShardedDataParallel

    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    model.inner = FullyShardedDataParallel(model.inner, device_id=torch.device(DEVICE))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=os.environ.get("FUSED") == "1" or None)
scaler = None
if os.environ.get("SCALER") == "sharded":
    from torch import distributed
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    scaler = ShardedGradScaler(device=DEVICE, process_group=distributed.group.WORLD)
elif os.environ.get("SCALER"):
    scaler = torch.amp.GradScaler(DEVICE)
has_region = os.environ.get("REGION", "1") == "1"
clip = os.environ.get("CLIP")
for step, (inputs, targets) in enumerate(loader):
    inputs, targets = inputs.to(DEVICE), targets.to(DEVICE)
    optimizer.zero_grad()
    with torch.autocast(DEVICE, dtype=torch.bfloat16, enabled=has_region):
        loss = nn.functional.mse_loss(model(inputs).float(), targets)
    if os.environ.get("OVERFLOW") == "1" and step == 2:
        loss = loss * 1e36
    if scaler is not None:
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
    else:
        loss.backward()
    if clip:
        if clip == "total":
            norm = nn.utils.get_total_norm([parameter.grad for parameter in model.parameters()])
            nn.utils.clip_grads_with_norm_(model.parameters(), 0.5, norm)
        elif clip == "sharded":
            norm = model.inner.clip_grad_norm_(0.5)
        else:
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        assert norm < 100 or norm == float("inf"), f"gradients were not scaled back: {norm}"
    if scaler is not None:
        scaler.step(optimizer)
        scaler.update()
    else:
        optimizer.step()
print("hidden", sorted(seen), "scaler", scaler is not None and scaler.is_enabled())
print("weights", repr(sum(float(parameter.detach().double().sum()) for parameter in model.parameters())))
if os.environ.get("FSDP"):
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    print("sharded scalers", sum(type(thing) is ShardedGradScaler for thing in gc.get_objects()))
