"""Two ranks that compute little and exchange the gradients of many weights after each step.

Run by `torchrun --nproc-per-node 2 communication.py`."""

from torch.nn.parallel import DistributedDataParallel

from common import Ready, distributed, loader_of, options, perceptron, train

INPUTS = 512


def main():
    parser = options(__doc__, batch_size=4, width=2048)  # the remedy is a larger batch
    args = parser.parse_args()
    with distributed() as device:
        model = DistributedDataParallel(perceptron(INPUTS, args.width).to(device))
        train(args, loader_of(Ready(8192, INPUTS), args, shuffle=True), model)


if __name__ == "__main__":
    main()
