"""Large batches go to the GPU from pageable memory, and the GPU waits for each. Needs a GPU."""

from common import Ready, loader_of, need_gpu, options, perceptron, train

INPUTS = 1 << 18


def main():
    parser = options(__doc__, batch_size=256, width=64)
    parser.add_argument("--pinned", action="store_true", help="the remedy")
    args = parser.parse_args()
    need_gpu("without one nothing is copied")
    loader = loader_of(Ready(1024, INPUTS), args, shuffle=True, pin_memory=args.pinned)
    train(args, loader, perceptron(INPUTS, args.width))


if __name__ == "__main__":
    main()
