"""A script for the experiments of a probe: it reads files, reads the loss in each step, and prints and writes lines.

Variables of the environment:

- DATA: the folder for its files. KIND: `images` for a file of each sample, `npy` for one mapped file.
- WORKERS: loader workers. START: their start method. KEEP: they persist. SLOW_WORKER: the second worker is slow.
- FAULT: sample 5 raises an error (`raise`) or kills its worker (`kill`)
- INPLACE: the script changes each batch
- EPOCHS: number of epochs
"""

import logging
import multiprocessing
import os
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DEVICE = os.environ.get("DEVICE", "cpu")

FOLDER = Path(os.environ.get("DATA", "."))
KIND = os.environ.get("KIND", "images")
FAULT = os.environ.get("FAULT")


class Samples(Dataset):
    def __init__(self):
        self.paths = [FOLDER / f"{number:03}.jpg" for number in range(64)]
        if KIND == "images":
            for path in self.paths:
                path.write_bytes(bytes(2000))
        self.mapped = None
        if KIND == "npy":
            import numpy

            numpy.save(FOLDER / "all.npy", numpy.zeros((64, 4), dtype=numpy.float32))
            self.mapped = numpy.load(FOLDER / "all.npy", mmap_mode="r")

    def __len__(self):
        return 64

    def __getitem__(self, index):
        worker = torch.utils.data.get_worker_info()
        time.sleep(0.004 if worker is not None and worker.id == 1 and "SLOW_WORKER" in os.environ else 0.001)
        if FAULT == "raise" and index == 5:
            raise ValueError("sample 5 is broken")
        if FAULT == "kill" and worker is not None and index == 5:
            os.kill(os.getpid(), 9)
        if KIND == "images":
            self.paths[index].read_bytes()
        if self.mapped is not None:
            return torch.tensor(self.mapped[index]), torch.ones(1)
        return torch.ones(4), torch.ones(1)


def main():
    torch.manual_seed(0)
    workers = int(os.environ.get("WORKERS", "0"))
    loader = DataLoader(
        Samples(),
        8,
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0 and "KEEP" in os.environ,
        multiprocessing_context=os.environ.get("START", "fork") if workers else None,
    )
    model = nn.Linear(4, 1).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    log = open(FOLDER / "log.txt", "w")
    for epoch in range(int(os.environ.get("EPOCHS", "40"))):
        for inputs, targets in loader:
            if "INPLACE" in os.environ:
                assert inputs.max() == 1, "the batch is not as it was"
                inputs.mul_(2)
            loss = nn.functional.mse_loss(model(inputs.to(DEVICE)), targets.to(DEVICE))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            value = loss.item()
            print("loss", value)
            log.write(f"{value}\n")
            log.flush()
            os.fsync(log.fileno())
            logging.warning("a step")
        if epoch == 3:
            print("children", len(multiprocessing.active_children()))
    print("trained", epoch + 1, len(loader))


if __name__ == "__main__":
    main()
