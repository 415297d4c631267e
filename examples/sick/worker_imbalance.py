"""Each worker has a shard of its own, and one of the shards lies on a disk that answers slowly. All wait for that worker.

The disk is simulated by `--slow-ms` of waiting for each sample, so that it costs no core."""

import time

import torch
from torch.utils.data import IterableDataset, get_worker_info

from common import CLASSES, loader_of, options, perceptron, train

LENGTH = 2048  # of a signal


class Shards(IterableDataset):
    def __init__(self, slow, fast, is_balanced):
        self.seconds = [slow, fast]  # that a sample of each shard takes to come
        self.is_balanced = is_balanced

    def __iter__(self):
        worker = get_worker_info()
        shard = 0 if worker is None else worker.id % 2
        for number in range(100_000):
            time.sleep(self.seconds[number % 2 if self.is_balanced else shard])
            yield torch.randn(LENGTH), number % CLASSES


def main():
    parser = options(__doc__, workers=2, width=640)
    parser.add_argument("--slow-ms", type=float, default=1.0, help="for a sample of the slow shard")
    parser.add_argument("--fast-ms", type=float, default=0.02, help="for a sample of the fast shard")
    parser.add_argument("--balanced", action="store_true", help="the remedy: each worker reads from both shards")
    args = parser.parse_args()
    shards = Shards(args.slow_ms / 1000, args.fast_ms / 1000, args.balanced)
    train(args, loader_of(shards, args), perceptron(LENGTH, args.width))


if __name__ == "__main__":
    main()
