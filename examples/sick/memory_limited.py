"""Twice the batch would be faster by far, but does not fit: the activations of this one nearly fill the memory.

On a GPU torch may use `--memory-mib`; on a CPU the process may."""

import resource

import torch

from common import Ready, device_of, loader_of, options, perceptron, train

INPUTS = 256


def limit_memory(mib):
    if device_of().type == "cuda":
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, (mib << 20) / total))
        return
    with open("/proc/self/statm") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + (mib << 20),) * 2)


class Wide(torch.nn.Module):
    """Blows its inputs up and looks at the mean: much memory for little arithmetic."""

    def __init__(self, width, times):
        super().__init__()
        self.model, self.times = perceptron(INPUTS, width), times

    def forward(self, inputs):
        wide = inputs.repeat(1, self.times)
        for _ in range(3):
            wide = torch.relu(wide + 0.1)  # each result is kept for the backward pass
        return self.model(wide.view(len(inputs), self.times, INPUTS).mean(dim=1))


def main():
    parser = options(__doc__, batch_size=32, width=2048)
    parser.add_argument("--memory-mib", type=int, default=420, help="for training; the remedy is more")
    parser.add_argument("--times", type=int, default=1024, help="how often each input is repeated")
    args = parser.parse_args()
    model = Wide(args.width, args.times).requires_grad_()
    limit_memory(args.memory_mib)
    train(args, loader_of(Ready(8192, INPUTS), args, shuffle=True), model)


if __name__ == "__main__":
    main()
