"""A job that takes options, trains at a known speed and says by events what it used: defaults where nothing is set."""

import argparse
import json
import os
import socket
import time

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=24)
parser.add_argument("--workers", type=int, default=2)
parser.add_argument("--amp-dtype", default="float32")
parser.add_argument("--amp", action="store_true", help="without it --amp-dtype is ignored")
parser.add_argument("--clamp", type=int, default=1 << 30, help="the largest batch that it really takes")
parser.add_argument("--samples", type=int, help="the samples of a step, whatever the other options say")
options = parser.parse_args()
batch = options.samples or min(options.batch_size, options.clamp)
precision = options.amp_dtype if options.amp else "fp32"
print("used", batch, options.workers, precision, flush=True)

connection = socket.socket(socket.AF_UNIX)
connection.connect(os.environ["GPUTUNE_SOCKET"])


def send(**event):
    connection.sendall((json.dumps(event) + "\n").encode())


if options.samples is None:
    send(event="fact", name="loader.batch_size", value=batch)
send(event="fact", name="loader.workers", value=options.workers)
send(event="fact", name="precision", value=precision)
for _ in range(4000):
    time.sleep(0.002)
    send(event="step", samples=batch)
