"""Each worker has a shard of its own, and one shard holds samples that cost several times as much as the others'."""

import torch
from torch.utils.data import IterableDataset, get_worker_info

from common import CLASSES, loader_of, options, perceptron, train

LENGTH = 1024  # of a signal


class Shards(IterableDataset):
    def __init__(self, cheap, costly, is_balanced):
        self.passes = [costly, cheap]  # over each signal of the shard
        self.is_balanced = is_balanced

    def __iter__(self):
        worker = get_worker_info()
        shard = 0 if worker is None else worker.id % len(self.passes)
        for number in range(100_000):
            passes = self.passes[(number if self.is_balanced else shard) % len(self.passes)]
            signal = torch.randn(LENGTH, generator=torch.Generator().manual_seed(number))
            for _ in range(passes):
                signal = torch.fft.irfft(torch.fft.rfft(signal), n=LENGTH)
            yield signal, number % CLASSES


def main():
    parser = options(__doc__, workers=2, width=256)
    parser.add_argument("--cheap", type=int, default=2, help="passes over a signal of the cheap shard")
    parser.add_argument("--costly", type=int, default=40, help="passes over a signal of the costly shard")
    parser.add_argument("--balanced", action="store_true", help="the remedy: mix the shards")
    args = parser.parse_args()
    train(args, loader_of(Shards(args.cheap, args.costly, args.balanced), args), perceptron(LENGTH, args.width))


if __name__ == "__main__":
    main()
