"""A plain PyTorch script with a slow dataset. It needs no change to be tuned.

With `--counter FILE` the script also writes the number of trained samples to a file. The bench reads it there.
"""

import argparse
import mmap
import struct
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    """Each sample takes 0.8 ms of waiting, and some CPU time for pooling."""

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        image = torch.randn(3, 32, 32)
        for _ in range(6):
            image = F.avg_pool2d(image[None], 3, 1, 1)[0]
        time.sleep(0.0008)
        return image, index % 10


class Counter:
    """A file with the number of samples as eight bytes. Without a path it does nothing."""

    def __init__(self, path):
        self.samples = 0
        self.memory = None
        if path:
            with open(path, "w+b") as file:
                file.write(bytes(8))
                file.flush()
                self.memory = mmap.mmap(file.fileno(), 8)

    def add(self, samples):
        self.samples += samples
        if self.memory is not None:
            self.memory[:8] = struct.pack("q", self.samples)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--variant", type=int, default=0, help="accepted, and ignored")
    parser.add_argument("--counter")
    args = parser.parse_args()
    counter = Counter(args.counter)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Slow(), batch_size=args.batch_size, num_workers=args.workers, shuffle=True, drop_last=True)
    while True:
        for images, labels in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()
            counter.add(len(labels))


if __name__ == "__main__":
    main()
