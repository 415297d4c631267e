"""Batches of like length: the batch sampler sorts the lengths of many texts for each of them, in the training process."""

import random

import torch
from torch.utils.data import DataLoader, Sampler

from common import Ready, collate, options, perceptron, train

INPUTS = 256


class LikeLength(Sampler):
    """Each batch is drawn anew, or all of an epoch are cut from one sorted list."""

    def __init__(self, lengths, batch_size, pool, once):
        self.lengths, self.batch_size, self.pool, self.once = lengths, batch_size, pool, once

    def __len__(self):
        return len(self.lengths) // self.batch_size

    def __iter__(self):
        if self.once:
            ranked = sorted(range(len(self.lengths)), key=self.lengths.__getitem__)
            for number in random.sample(range(len(self)), len(self)):
                yield ranked[number * self.batch_size : (number + 1) * self.batch_size]
        for _ in range(0 if self.once else len(self)):
            ranked = sorted(random.sample(range(len(self.lengths)), self.pool), key=self.lengths.__getitem__)
            start = random.randrange(self.pool - self.batch_size)
            yield ranked[start : start + self.batch_size]


def main():
    parser = options(__doc__, batch_size=64, workers=1, width=256)
    parser.add_argument("--pool", type=int, default=12_000, help="texts that are sorted for each batch")
    parser.add_argument("--once", action="store_true", help="sort once for each epoch")
    args = parser.parse_args()
    texts = Ready(1 << 16, INPUTS)
    lengths = torch.randint(20, 400, (len(texts),), generator=torch.Generator().manual_seed(0)).tolist()
    batches = LikeLength(lengths, args.batch_size, args.pool, args.once)
    more = {"prefetch_factor": args.prefetch, "persistent_workers": True} if args.workers > 0 else {}
    pinned = torch.cuda.is_available()
    loader = DataLoader(
        texts, batch_sampler=batches, num_workers=args.workers, collate_fn=collate, pin_memory=pinned, **more
    )
    train(args, loader, perceptron(INPUTS, args.width))


if __name__ == "__main__":
    main()
