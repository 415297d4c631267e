"""Workers hand over batches in /dev/shm, and it is nearly full of them.

Needs a small one, as containers have: `python limited.py --shm-mib 16 -- COMMAND`."""

import os
import sys

import torch
from torch.utils.data import Dataset

from common import CLASSES, loader_of, options, perceptron, train

FLOATS = 8192  # of a sample


class Zeros(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        return torch.zeros(FLOATS), index % CLASSES


def main():
    parser = options(__doc__, batch_size=32, workers=2, prefetch=6, width=256)
    args = parser.parse_args()
    room = os.statvfs("/dev/shm")
    batches = 4 * FLOATS * args.batch_size * args.workers * args.prefetch
    if room.f_blocks * room.f_frsize > 2 * batches:
        sys.exit("error: /dev/shm is large here; see limited.py --shm-mib")
    train(args, loader_of(Zeros(), args), perceptron(FLOATS, args.width))


if __name__ == "__main__":
    main()
