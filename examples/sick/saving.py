"""Every other step a checkpoint of the weights and of the optimizer's state is written, and the training waits for it."""

import io
import os
import pathlib
import tempfile

import torch

from common import Ready, loader_of, options, perceptron, train

INPUTS = 256


class Checkpoints:
    def __init__(self, args, folder):
        self.every = args.every
        self.file = pathlib.Path(folder) / "checkpoint.pt"

    def __call__(self, step, model, *_):
        if step % self.every == 0:
            written = io.BytesIO()
            torch.save({"step": step, "model": model.state_dict()}, written)
            torch.save({"step": step, "model": model.state_dict()}, self.file)
            os.sync()


def main():
    parser = options(__doc__, batch_size=64, width=1024)
    parser.add_argument("--every", type=int, default=2, help="steps between two checkpoints; the remedy is 1000")
    parser.add_argument("--folder", help="on a disk; a temporary one where it is not given")
    args = parser.parse_args()
    loader = loader_of(Ready(8192, INPUTS), args, shuffle=True)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        train(args, loader, perceptron(INPUTS, args.width), Checkpoints(args, folder))


if __name__ == "__main__":
    main()
