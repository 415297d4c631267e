"""Prints whether the workers were forked from this process, and whether batches come in order. The first worker is slow."""

import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

DEVICE = os.environ.get("DEVICE", "cpu")
PARENT = None  # set by `main`; spawned workers do not have it


class Slow(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        info = get_worker_info()
        if info is not None and info.id == 0:
            time.sleep(0.01)
        return torch.full((4,), 1.0), torch.tensor([1.0]), -1 if info is None else info.id, int(PARENT is not None)


def main():
    global PARENT
    PARENT = os.getpid()
    loader = DataLoader(Slow(), 4, shuffle=True, num_workers=int(os.environ.get("WORKERS", "2")))
    model = nn.Linear(4, 1).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    workers, forked = [], set()
    for inputs, targets, worker, is_forked in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs.to(DEVICE)), targets.to(DEVICE)).backward()
        optimizer.step()
        workers.append(int(worker[0]))
        forked.update(is_forked.tolist())
    print("forked", forked, "alternating", all(one != other for one, other in zip(workers, workers[1:])))


if __name__ == "__main__":
    main()
