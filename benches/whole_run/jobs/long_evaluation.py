"""Each epoch ends with an evaluation that takes about as long as the training."""

import argparse

import torch
from data import Pictures, network
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--epochs", type=int, default=10)
args = parser.parse_args()

model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
training = DataLoader(Pictures(2500), batch_size=args.batch_size, num_workers=args.workers, shuffle=True)
evaluation = DataLoader(Pictures(4000), batch_size=100)
for epoch in range(args.epochs):
    model.train()
    for pictures, labels in training:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(pictures), labels).backward()
        optimizer.step()
    model.eval()
    right = 0
    with torch.no_grad():
        for pictures, labels in evaluation:
            right += int((model(pictures).argmax(1) == labels).sum())
    print(f"epoch {epoch} accuracy {right / 4000:.3f}", flush=True)
