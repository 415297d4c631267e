"""Trains less than its rate says, or cannot end an epoch: in the way that the first argument names."""

import argparse
import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, get_worker_info

parser = argparse.ArgumentParser()
parser.add_argument("way")
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--workers", type=int, default=0)
args = parser.parse_args()
size = args.batch_size


class Stream(IterableDataset):
    """With the way `parts`, each worker yields its own samples; else all workers yield the same.

    With the way `two_parts`, only two workers have samples.
    """

    def __iter__(self):
        info = get_worker_info() if args.way != "repeats" else None
        if args.way == "two_parts" and info is not None and info.id > 1:
            return
        first, apart = (info.id, info.num_workers) if info is not None else (0, 1)
        for index in range(first, 1_000_000, apart):
            time.sleep(0.001)
            yield torch.full((4,), float(index % 7))


def loader():
    if args.way in ("repeats", "parts", "two_parts"):
        return DataLoader(Stream(), batch_size=size, num_workers=args.workers)
    if args.way in ("small", "none"):
        return DataLoader(TensorDataset(torch.randn(100, 4)), size, shuffle=True, drop_last=args.way == "none")
    if args.way in ("memory", "files"):  # whose epochs are short
        return DataLoader(TensorDataset(torch.randn(64, 4)), size, shuffle=True)
    return DataLoader(TensorDataset(torch.randn(6401, 4)), size, shuffle=True)


def main():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    kept = []
    for _ in range(1000):
        for batch in loader():
            inputs = batch[0] if isinstance(batch, list) else batch
            if size > 8 and args.way == "memory":
                kept.append(b"x" * 4_000_000)
            elif size > 8 and args.way == "files":
                kept.append(open(os.devnull))
            time.sleep(0.005 if args.way in ("repeats", "parts", "two_parts") else 0.002 * len(inputs))
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()


if __name__ == "__main__":
    main()
