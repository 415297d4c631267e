"""Prints which samples each epoch saw, in batches of which sizes. MODEL=scaled has batch normalisation, REGION=1 autocast."""

import os
import time
from contextlib import nullcontext

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

DEVICE = os.environ.get("DEVICE", "cpu")


class Numbers(Dataset):
    def __len__(self):
        return int(os.environ.get("LENGTH", "6400"))

    def __getitem__(self, index):
        return torch.full((4,), float(index % 7)), index


class Pairs:
    """Batches by another way than torch's."""

    def __init__(self, data, batch_size):
        self.sampler, self.batch_size = RandomSampler(data), batch_size

    def __iter__(self):
        batch = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []


torch.manual_seed(0)
data = Numbers()
if os.environ.get("SAMPLER"):
    loader = DataLoader(data, batch_sampler=Pairs(data, 8))
else:
    loader = DataLoader(data, 8, shuffle=True, drop_last=True)
layers = [nn.BatchNorm1d(4)] if os.environ.get("MODEL") == "scaled" else []
model = nn.Sequential(*layers, nn.Linear(4, 1)).to(DEVICE)
if os.environ.get("COMPILE"):
    model = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
region = torch.autocast(DEVICE, dtype=torch.bfloat16) if os.environ.get("REGION") else nullcontext()
while True:
    seen = []
    try:
        for inputs, indices in loader:
            seen.append(indices.tolist())
            optimizer.zero_grad()
            with region:
                outputs = model(inputs.to(DEVICE))
            outputs.float().square().mean().backward()
            time.sleep(0.01)
            optimizer.step()
    finally:
        print("epoch", *(",".join(map(str, batch)) for batch in seen), flush=True)
