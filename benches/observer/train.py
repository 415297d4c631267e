"""An ordinary training script: a small CNN on random images. It prints its own speed at the end and knows no gputune.

usage: train.py STEPS
"""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH = 32
steps, warmup = int(sys.argv[1]), 20
torch.manual_seed(0)
images = torch.randn(BATCH * 16, 3, 32, 32)
loader = DataLoader(TensorDataset(images, torch.randint(0, 10, (len(images),))), batch_size=BATCH, shuffle=True)
model = nn.Sequential(
    nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(64 * 8 * 8, 10),
)  # fmt: skip
optimizer = torch.optim.AdamW(model.parameters())
criterion = nn.CrossEntropyLoss()
done = 0
while done < warmup + steps:
    for image, label in loader:
        if done == warmup:
            wall, cpu = time.perf_counter(), time.process_time()
        optimizer.zero_grad()
        criterion(model(image), label).backward()
        optimizer.step()
        done += 1
        if done == warmup + steps:
            break
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
print(f"{steps / wall:.4f} steps/s; {cpu / steps * 1e6:.1f} us of CPU per step", flush=True)
