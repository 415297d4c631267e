"""A deep and narrow model that gets two samples at a time: what a step costs does not depend on how many there are."""

from common import Ready, loader_of, options, perceptron, train

INPUTS = 64


def main():
    parser = options(__doc__, batch_size=2, width=64)
    parser.add_argument("--depth", type=int, default=24, help="layers")
    args = parser.parse_args()
    samples = Ready(8192, INPUTS)
    train(args, loader_of(samples, args, shuffle=True), perceptron(INPUTS, args.width, args.depth))


if __name__ == "__main__":
    main()
