"""Twice the batch would be nearly twice as fast, but does not fit: each sample needs much memory while it is trained on.

On a GPU torch may use `--memory-mib`; on a CPU the process may."""

import resource

import torch

from common import Ready, device_of, loader_of, options, perceptron, train

INPUTS = 64


def limit_memory(mib):
    if device_of().type == "cuda":
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, (mib << 20) / total))
        return
    with open("/proc/self/statm") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + (mib << 20),) * 2)


class Hungry(torch.nn.Module):
    """Takes memory for each sample, as the scores of attention over a long sequence do."""

    def __init__(self, model, mib):
        super().__init__()
        self.model, self.floats = model, mib << 18

    def forward(self, inputs):
        scores = inputs.new_empty(len(inputs), self.floats)
        scores[:, :INPUTS] = inputs
        return self.model(scores[:, :INPUTS])


def main():
    parser = options(__doc__, batch_size=8, width=64)
    parser.add_argument("--memory-mib", type=int, default=960, help="for training; the remedy is more, and a larger batch")
    parser.add_argument("--sample-mib", type=int, default=64, help="memory that a sample needs")
    parser.add_argument("--depth", type=int, default=24, help="layers")
    args = parser.parse_args()
    limit_memory(args.memory_mib)
    model = Hungry(perceptron(INPUTS, args.width, args.depth), args.sample_mib)
    train(args, loader_of(Ready(8192, INPUTS), args, shuffle=True), model)


if __name__ == "__main__":
    main()
