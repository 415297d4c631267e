"""Samples are there at once; making a batch of them is what takes time, in one worker."""

from torch.utils.data import default_collate

from common import Ready, burn, loader_of, options, perceptron, train

INPUTS = 256


class Samples(Ready):
    """One by one, so that there is something to collate."""

    __getitems__ = None


class Augmenting:
    """A `collate_fn` that changes each sample of a batch, as those of detection and speech do."""

    def __init__(self, milliseconds):
        self.seconds = milliseconds / 1e3

    def __call__(self, samples):
        burn(self.seconds * len(samples))
        return default_collate(samples)


def main():
    parser = options(__doc__, workers=1)
    parser.add_argument("--collate-ms", type=float, default=0.8, help="to compute for a sample; the remedy is 0")
    args = parser.parse_args()
    loader = loader_of(Samples(8192, INPUTS), args, shuffle=True, collate_fn=Augmenting(args.collate_ms))
    train(args, loader, perceptron(INPUTS, args.width))


if __name__ == "__main__":
    main()
