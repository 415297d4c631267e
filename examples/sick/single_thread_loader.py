"""Samples cost about as much as training on them, and both are done by the training process, one after the other."""

import torch
from torch.utils.data import Dataset

from common import CLASSES, loader_of, options, perceptron, train

LENGTH = 2048  # of a signal


class Signals(Dataset):
    """Noise whose spectrum is shaped anew each time: real work on one core."""

    def __init__(self, length, filters):
        self.length = length
        self.filters = filters

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        signal = torch.randn(LENGTH, generator=torch.Generator().manual_seed(index))
        for scale in range(1, self.filters + 1):
            spectrum = torch.fft.rfft(signal)
            signal = torch.fft.irfft(spectrum * torch.linspace(1.0, 1.0 / scale, len(spectrum)), n=LENGTH)
        return signal, index % CLASSES


def main():
    parser = options(__doc__, workers=0, width=768)
    parser.add_argument("--filters", type=int, default=4, help="passes over each signal: what a sample costs")
    args = parser.parse_args()
    train(args, loader_of(Signals(100_000, args.filters), args, shuffle=True), perceptron(LENGTH, args.width))


if __name__ == "__main__":
    main()
