"""Fails in the way that FAULT names."""

import os
import subprocess
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DEVICE = os.environ.get("DEVICE", "cpu")

fault = os.environ["FAULT"]
if fault == "import":
    import no_such_module  # noqa: F401
if fault == "child":
    child = os.fork()
    if child == 0:
        raise RuntimeError("a child that nobody waits for")
    os.waitpid(child, 0)
if fault == "subprocess":
    subprocess.run([sys.executable, "-c", "import torch; print(torch.zeros(1).item())"], check=True)
loader = DataLoader(TensorDataset(torch.randn(4096, 4)), 8, shuffle=True)
model = nn.Linear(4, 1).to(DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for number, (inputs,) in enumerate(loader):
    optimizer.zero_grad()
    loss = model(inputs.to(DEVICE)).pow(2).mean()
    if fault == "nan" and number == 20:
        loss = loss * float("nan")
    loss.backward()
    optimizer.step()
    if number == 5:
        if fault == "error":
            raise ValueError("five is enough")
        if fault == "memory":
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        if fault == "nvml":  # as in a MIG instance, where NVML gives the allocator no numbers for its message
            place = "../c10/cuda/CUDACachingAllocator.cpp"
            raise RuntimeError(f'NVML_SUCCESS == r INTERNAL ASSERT FAILED at "{place}":1154, please report a bug to PyTorch.')
        if fault == "host":
            torch.empty(1 << 60)
        if fault == "helper":  # another training, which fails
            environment = {**os.environ, "FAULT": "error"}
            print("helper", subprocess.run([sys.executable, __file__], env=environment).returncode)
        if fault == "exit":
            sys.exit(3)
        if fault == "save":
            torch.save(model.state_dict(), "model.pt")
        if fault == "whole":
            torch.save(model, "model.pt")
