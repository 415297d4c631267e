"""Every 20 steps the model is validated, which takes as long as the 20 steps do."""

import torch

from common import Ready, loader_of, options, perceptron, train

INPUTS = 256


class Validation:
    def __init__(self, args):
        self.every = args.every
        self.loader = loader_of(Ready(args.held_out, INPUTS), args)
        self.best = 0.0

    def __call__(self, step, model, *_):
        if step % self.every != 0:
            return
        model.eval()
        right = seen = 0
        with torch.no_grad():
            for inputs, labels in self.loader:
                right += (model(inputs).argmax(1) == labels).sum().item()
                seen += len(labels)
        self.best = max(self.best, right / seen)
        model.train()


def main():
    parser = options(__doc__, batch_size=128)
    parser.add_argument("--every", type=int, default=20, help="steps between two validations; the remedy is 1000")
    parser.add_argument("--held-out", type=int, default=6400, help="samples of a validation")
    args = parser.parse_args()
    loader = loader_of(Ready(8192, INPUTS), args, shuffle=True)
    train(args, loader, perceptron(INPUTS, args.width), Validation(args))


if __name__ == "__main__":
    main()
