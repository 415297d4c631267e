"""Between two steps the loop computes metrics and text in Python, while the device has nothing to do."""

from common import Ready, burn, loader_of, options, perceptron, train

INPUTS = 256


def main():
    parser = options(__doc__, batch_size=64)
    parser.add_argument("--python-ms", type=float, default=15.0, help="in each step; the remedy is 0")
    args = parser.parse_args()

    def each_step(*_):
        if args.python_ms > 0:
            burn(args.python_ms / 1e3)

    train(args, loader_of(Ready(8192, INPUTS), args, shuffle=True), perceptron(INPUTS, args.width), each_step)


if __name__ == "__main__":
    main()
