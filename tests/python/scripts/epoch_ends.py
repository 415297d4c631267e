"""Trains for epochs of 400 batches of 5 ms. After each it evaluates 100 batches of 10 ms, and sleeps 0.2 s as if it saved."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Slow(TensorDataset):
    def __init__(self, length: int, seconds: float) -> None:
        super().__init__(torch.randn(length, 4))
        self._seconds = seconds

    def __getitem__(self, index):
        time.sleep(self._seconds)
        return super().__getitem__(index)


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("-n", "--max-steps", type=int, default=-1)
command = parser.add_subparsers().add_parser("limited")
command.add_argument("--total-steps", type=int)
args = parser.parse_args()
steps = getattr(args, "total_steps", args.max_steps)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
training = DataLoader(Slow(800, 0.0025), batch_size=2, shuffle=True, num_workers=args.workers)
evaluation = DataLoader(Slow(100, 0.01), batch_size=1)
print("batches", len(training), len(evaluation), flush=True)
for epoch in range(args.epochs):
    model.train()
    for (batch,) in training:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
        steps -= 1
        if steps == 0:
            raise SystemExit
    model.eval()
    with torch.no_grad():
        for (batch,) in evaluation:
            model(batch)
    time.sleep(0.2)
print("trained")
