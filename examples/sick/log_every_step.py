"""Every step writes a line for each of many counters to a log file, and waits until it is on the disk."""

import logging
import os
import time

from common import Ready, disk_folder, loader_of, options, perceptron, train

INPUTS = 256


class Log:
    def __init__(self, path, every, counters):
        self.handler = logging.FileHandler(path, mode="w")
        self.logger = logging.getLogger("train")
        self.logger.addHandler(self.handler)
        self.logger.setLevel(logging.INFO)
        self.logger.propagate = False
        self.every, self.counters = every, counters

    def write(self, step, _model, _outputs, labels, _loss):
        if step % self.every == 0:
            for counter in range(self.counters):
                self.logger.info("%.6f step=%d counter_%d=%d", time.time(), step, counter, step * len(labels))
            os.fsync(self.handler.stream.fileno())


def main():
    parser = options(__doc__, batch_size=64, width=256)
    parser.add_argument("--log-every", type=int, default=1, help="steps; the remedy is 100")
    parser.add_argument("--counters", type=int, default=100, help="lines written each time")
    parser.add_argument("--folder", help="where the log is written; by default ~/.cache/gputune-sick")
    args = parser.parse_args()
    log = Log(disk_folder(args, "log") / "train.log", args.log_every, args.counters)
    train(args, loader_of(Ready(8192, INPUTS), args, shuffle=True), perceptron(INPUTS, args.width), log.write)


if __name__ == "__main__":
    main()
