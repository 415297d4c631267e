"""Prints its rate with thousands separators, exponents, a factor, a decimal comma, colours, a swapped unit, or behind a label."""

import argparse
import time

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=32)
parser.add_argument("--style", default="commas")
args = parser.parse_args()


def shown(rate):
    steps = rate / args.batch_size
    return {
        "commas": f"{rate:,.1f} samples/s",
        "exponent": f"{rate:.3e} samples/s",
        "factor": f"{rate / 1000:.2f}k samples/s",
        "decimal_comma": f"{rate:.1f}".replace(".", ",") + " samples/s",
        "colours": f"\x1b[1m{rate:.1f}\x1b[0m \x1b[2msamples/s\x1b[0m",
        "label": f"samples/s: {rate:.1f}",
        "swapped": f"{1 / steps:.4f}s/it",
    }[args.style]


begin, steps, step = time.perf_counter(), 0, 0
while True:
    time.sleep(0.01 + 0.00045 * args.batch_size)
    steps, step = steps + 1, step + 1
    seconds = time.perf_counter() - begin
    if seconds >= 0.2:
        print(f"step {step} {shown(steps * args.batch_size / seconds)}", flush=True)
        begin, steps = time.perf_counter(), 0
