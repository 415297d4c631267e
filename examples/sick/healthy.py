"""Nothing is wrong: data that is ready, batches that fill the processor, and nothing but training."""

from common import Ready, loader_of, options, perceptron, train

INPUTS = 512


def main():
    parser = options(__doc__, batch_size=256, width=1024)
    args = parser.parse_args()
    samples = Ready(16384, INPUTS)
    train(args, loader_of(samples, args, shuffle=True), perceptron(INPUTS, args.width))


if __name__ == "__main__":
    main()
