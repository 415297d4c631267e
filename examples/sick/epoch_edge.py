"""Epochs of a few batches, and workers that are started anew for each of them."""

from common import Ready, loader_of, options, perceptron, train

INPUTS = 256


def main():
    parser = options(__doc__, batch_size=64, workers=2, width=512)
    parser.add_argument("--batches", type=int, default=16, help="of an epoch")
    parser.add_argument("--persistent", action="store_true", help="the remedy: keep the workers")
    args = parser.parse_args()
    length = args.batches * args.batch_size
    samples = Ready(length, INPUTS)
    loader = loader_of(samples, args, shuffle=True, persistent_workers=args.persistent and args.workers > 0)
    train(args, loader, perceptron(INPUTS, args.width))


if __name__ == "__main__":
    main()
