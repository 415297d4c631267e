"""All workers read through one lock, as with a file handle, an archive or a server that takes one request at a time."""

import multiprocessing
import time

from common import Ready, burn, loader_of, options, perceptron, train

INPUTS = 256


class Locked(Ready):
    __getitems__ = None

    def __init__(self, length, inputs, milliseconds, computes):
        super().__init__(length, inputs)
        self.seconds = milliseconds / 1e3
        self.computes = computes
        self.lock = multiprocessing.Lock()

    def __getitem__(self, index):
        with self.lock:
            (burn if self.computes else time.sleep)(self.seconds)
        return super().__getitem__(index)


def main():
    parser = options(__doc__, workers=4)
    parser.add_argument("--held-ms", type=float, default=1.0, help="for each sample; the remedy is 0")
    parser.add_argument("--computes", action="store_true", help="while it holds the lock; it waits there otherwise")
    args = parser.parse_args()
    loader = loader_of(Locked(8192, INPUTS, args.held_ms, args.computes), args, shuffle=True)
    train(args, loader, perceptron(INPUTS, args.width))


if __name__ == "__main__":
    main()
