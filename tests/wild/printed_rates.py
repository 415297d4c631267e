"""A script that prints a rate each ten steps, and trains at mixed speeds. What it really did is its last line."""

import argparse
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=16)
parser.add_argument("--seconds", type=float, default=8.0)
parser.add_argument("--unit", default="samples/s", choices=["samples/s", "ms/step"])
parser.add_argument("--together", type=int, default=1, help="lines that are written at once")
args = parser.parse_args()

waiting, rounds, begin = [], 0, time.perf_counter()
while time.perf_counter() - begin < args.seconds:
    # One stretch in five is ten times slower.
    pace = 0.02 if rounds * 7 % 5 == 0 else 0.002
    since = time.perf_counter()
    for _ in range(10):
        time.sleep(pace)
    seconds = time.perf_counter() - since
    rounds += 1
    rate = 10 * args.batch_size / seconds if args.unit == "samples/s" else 100 * seconds
    waiting.append(f"step {10 * rounds}: {rate:.2f} {args.unit}\n")
    if len(waiting) >= args.together:
        sys.stdout.write("".join(waiting))
        sys.stdout.flush()
        waiting = []
    print(f"true {10 * rounds * args.batch_size / (time.perf_counter() - begin):.2f}", file=sys.stderr, flush=True)
