"""Long chains of elementwise operations: much data is moved for little arithmetic. Needs a GPU."""

import torch

from common import Ready, loader_of, need_gpu, options, perceptron, train

INPUTS = 8192


class Chain(torch.nn.Module):
    def __init__(self, width, links):
        super().__init__()
        self.model, self.links = perceptron(INPUTS, width, 1), links

    def forward(self, inputs):
        for _ in range(self.links):
            inputs = torch.relu(inputs * 1.01 + 0.01)
        return self.model(inputs)


def main():
    parser = options(__doc__, batch_size=4096, width=64)
    parser.add_argument("--links", type=int, default=200)
    args = parser.parse_args()
    need_gpu("a CPU's memory tells nothing of its bandwidth")
    model = Chain(args.width, args.links)
    model.register_parameter("scale", torch.nn.Parameter(torch.ones(INPUTS)))
    train(args, loader_of(Ready(16384, INPUTS), args, shuffle=True), model)


if __name__ == "__main__":
    main()
