"""Fits a linear model by stochastic gradient descent and reports each step to gputune. Standard library only."""

import json
import operator
import os
import random
import socket
import sys
import time


class Reporter:
    """Sends events to the probe that this process belongs to; outside a probe it sends nothing."""

    def __init__(self):
        self.socket = None
        if path := os.environ.get("GPUTUNE_SOCKET"):
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.socket.connect(path)

    def send(self, event, **fields):
        if self.socket:
            self.socket.sendall((json.dumps({"event": event, **fields}) + "\n").encode())


def product_by_loop(a, b):
    return sum(x * y for x, y in zip(a, b))


def product_by_map(a, b):
    return sum(map(operator.mul, a, b))


PRODUCTS = {"loop": product_by_loop, "map": product_by_map}
FEATURES = 32
TRUTH = [(-1) ** at / (at + 1) for at in range(FEATURES)]


def load(rng, count):
    """Draws a batch of samples: features and the value to predict."""
    rows = [[rng.gauss(0, 1) for _ in range(FEATURES)] for _ in range(count)]
    return rows, [product_by_map(TRUTH, row) + rng.gauss(0, 0.1) for row in rows]


def train(batch_size, product, reporter, steps=sys.maxsize):
    rng = random.Random(0)
    weights = [0.0] * FEATURES
    for _ in range(steps):
        begin = time.perf_counter()
        rows, targets = load(rng, batch_size)
        loaded = time.perf_counter()
        errors = [product(weights, row) - y for row, y in zip(rows, targets)]
        for at, column in enumerate(zip(*rows)):
            weights[at] -= 0.02 * product(errors, column) / batch_size
        loss = product(errors, errors) / batch_size
        reporter.send("phase", name="data_wait", seconds=loaded - begin)
        reporter.send("step", samples=batch_size, time=time.perf_counter(), loss=loss)
    return loss


def main():
    reporter = Reporter()
    reporter.send("hello", framework="standard library")
    config = json.loads(os.environ.get("GPUTUNE_CONFIG", '{"batch_size": 8, "product": "loop"}'))
    product = PRODUCTS[config["product"]]
    if reporter.socket:
        train(config["batch_size"], product, reporter)  # for ever: the probe ends this process
    else:
        print("loss", train(config["batch_size"], product, reporter, steps=1000))


if __name__ == "__main__":
    main()
