"""Samples lie in memory and are large, and workers hand each of them over: that costs more than to train on them."""

import torch
from torch.utils.data import Dataset

from common import CLASSES, loader_of, options, perceptron, train

SIDE = 96  # of a picture of three colours


class Pictures(Dataset):
    """One picture after the other out of one tensor, as a TensorDataset has them."""

    def __init__(self, length):
        self.pictures = torch.randn(length, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        return self.pictures[index], index % CLASSES


def main():
    parser = options(__doc__, batch_size=64, workers=2, width=16)
    args = parser.parse_args()
    train(args, loader_of(Pictures(4096), args, shuffle=True), perceptron(3 * SIDE * SIDE, args.width))


if __name__ == "__main__":
    main()
