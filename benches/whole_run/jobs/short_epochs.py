"""Many short epochs: each starts its loader again."""

import argparse

import torch
from data import Pictures, network
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--epochs", type=int, default=150)
args = parser.parse_args()

model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.9)
loader = DataLoader(Pictures(384), batch_size=args.batch_size, num_workers=args.workers, shuffle=True)
for epoch in range(args.epochs):
    for pictures, labels in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(pictures), labels)
        loss.backward()
        optimizer.step()
    schedule.step()
    print(f"epoch {epoch} loss {loss.item():.3f}", flush=True)
