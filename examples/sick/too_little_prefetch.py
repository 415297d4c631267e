"""The loader is fast enough on average, but now and then a long document holds it up, and nothing is kept in reserve."""

import zlib

import numpy
import torch
from torch.utils.data import Dataset

from common import CLASSES, loader_of, options, perceptron, train

WORDS = 1024  # that the model sees of a document


class Documents(Dataset):
    """Compressed documents, most of them short; every so many batches one is far longer than the rest."""

    def __init__(self, batch_size, every, times):
        words = numpy.random.default_rng(0).integers(0, 500, 4_000, dtype=numpy.int32).tobytes()
        self.short, self.long = zlib.compress(words, 1), zlib.compress(words * times, 1)
        self.period = batch_size * every

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        words = zlib.decompress(self.long if index % self.period == 0 else self.short)
        return torch.frombuffer(bytearray(words[: 4 * WORDS]), dtype=torch.int32).float() / 500.0, index % CLASSES


def main():
    parser = options(__doc__, workers=1, prefetch=1, width=1024)
    parser.add_argument("--every", type=int, default=16, help="batches from one long document to the next")
    parser.add_argument("--times", type=int, default=850, help="how much longer than others it is")
    args = parser.parse_args()
    train(args, loader_of(Documents(args.batch_size, args.every, args.times), args), perceptron(WORDS, args.width))


if __name__ == "__main__":
    main()
