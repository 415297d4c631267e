"""Each epoch ends with a checkpoint of the model, the optimizer and a copy of the averaged weights."""

import argparse
import os
import tempfile

import torch
from data import Pictures, network
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--epochs", type=int, default=30)
args = parser.parse_args()

model = network()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
table = torch.nn.Embedding(200_000, 128)  # part of the checkpoint, not trained here
loader = DataLoader(Pictures(1600), batch_size=args.batch_size, num_workers=args.workers, shuffle=True)
with tempfile.TemporaryDirectory() as folder:
    for epoch in range(args.epochs):
        for pictures, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(pictures), labels).backward()
            optimizer.step()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "table": table.state_dict()}
        path = os.path.join(folder, "last.pt")
        torch.save(state, path)
        with open(path, "rb") as file:
            os.fsync(file.fileno())
        print(f"epoch {epoch} saved", flush=True)
