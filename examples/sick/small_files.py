"""Every sample is read from several small files in random order, on a disk that answers slowly.

The files are made at the first run. To have a dataset larger than memory without one, each file is dropped from the page
cache once it was read (`posix_fadvise`), so the next epoch reads from the disk again. What a network disk adds for each file,
its way there and back, is simulated: `--latency-ms`. With 0 the disk's own latency is left, real and often short."""

import os
import time

import torch
from torch.utils.data import Dataset

from common import CLASSES, disk_folder, loader_of, options, perceptron, train, uncached

BYTES = 4096  # of a file
PARTS = 2  # files of a sample


class SmallFiles(Dataset):
    def __init__(self, folder, samples, latency):
        self.paths = [folder / f"{number:05}.png" for number in range(samples * PARTS)]
        self.latency = latency  # None: local, and cached
        for path in self.paths:
            if not path.exists() or path.stat().st_size != BYTES:
                path.write_bytes(os.urandom(BYTES))
        os.sync()

    def __len__(self):
        return len(self.paths) // PARTS

    def __getitem__(self, index):
        sample = b"".join(self.read(path) for path in self.paths[index::len(self)])
        return torch.frombuffer(bytearray(sample), dtype=torch.uint8)[::4].float() / 255.0, index % CLASSES

    def read(self, path):
        with open(path, "rb") as file:
            if self.latency is not None:
                time.sleep(self.latency)
            part = file.read()
            if self.latency is not None:
                uncached(file.fileno())
        return part


def main():
    parser = options(__doc__, workers=1)
    parser.add_argument("--samples", type=int, default=1024)
    parser.add_argument("--folder", help="where the files are made; by default ~/.cache/gputune-sick")
    parser.add_argument("--latency-ms", type=float, default=0.5, help="what the network adds for each file")
    parser.add_argument("--local", action="store_true", help="the remedy: a local copy that the page cache holds")
    args = parser.parse_args()
    latency = None if args.local else args.latency_ms / 1000
    files = SmallFiles(disk_folder(args, "small-files"), args.samples, latency)
    train(args, loader_of(files, args, shuffle=True), perceptron(PARTS * BYTES // 4, args.width))


if __name__ == "__main__":
    main()
