"""Two ranks, one of which has far longer samples than the other, which waits for it in each step.

Run by `torchrun --nproc-per-node 2 straggler.py`."""

import os

import torch
from torch.nn.parallel import DistributedDataParallel

from common import Ready, distributed, loader_of, options, perceptron, train

INPUTS = 256


class Recurrent(torch.nn.Module):
    """Looks at a sample as often as it is long."""

    def __init__(self, width, length):
        super().__init__()
        self.model, self.length = perceptron(INPUTS, width), length

    def forward(self, inputs):
        return sum(self.model(inputs) for _ in range(self.length)) / self.length


def main():
    parser = options(__doc__, batch_size=64, width=256)
    parser.add_argument("--long", type=int, default=12, help="length of the last rank's samples; the remedy is that of --short")
    parser.add_argument("--short", type=int, default=4, help="length of the other's")
    args = parser.parse_args()
    with distributed() as device:
        is_last = os.environ["RANK"] == str(int(os.environ["WORLD_SIZE"]) - 1)
        model = Recurrent(args.width, args.long if is_last else args.short).to(device)
        train(args, loader_of(Ready(8192, INPUTS), args, shuffle=True), DistributedDataParallel(model))


if __name__ == "__main__":
    main()
