"""Keeps a GPU busy for a given share of the time, and prints how many products of matrices it makes in a second."""

import argparse
import time

import torch


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", type=int, default=4096, help="rows and columns of the matrices")
    parser.add_argument("--busy", type=float, default=1.0, help="share of the time")
    parser.add_argument("--cycle", type=float, default=0.1, help="seconds of one period of work and rest")
    parser.add_argument("--memory-gib", type=float, default=0.0, help="memory that is held beside the matrices")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--log-seconds", type=float, default=0.25)
    parser.add_argument("--rate-file", help="the mean rate goes there at every line that is printed")
    parser.add_argument("--rate-seconds", type=float, default=1e9, help="only so many seconds count for the mean rate")
    args = parser.parse_args()

    precision = torch.bfloat16 if args.device == "cuda" else torch.float32
    left, right = (torch.randn(args.size, args.size, device=args.device, dtype=precision) for _ in range(2))
    result = torch.empty_like(left)
    held = torch.ones(int(args.memory_gib * 2**30), dtype=torch.uint8, device=args.device)
    wait = torch.cuda.synchronize if args.device == "cuda" else lambda: None

    def work(seconds):
        products, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            for _ in range(8):
                torch.mm(left, right, out=result)
            wait()
            products += 8
        return products

    work(1.0)  # what the first products set up is no part of the rate
    print("steady", time.time(), held.numel(), flush=True)
    begun = since = time.perf_counter()
    products = in_all = 0
    while time.perf_counter() - begun < args.seconds:
        products += work(args.busy * args.cycle)
        if args.busy < 1:
            time.sleep((1 - args.busy) * args.cycle)
        now = time.perf_counter()
        if now - since >= args.log_seconds:
            in_all += products
            print(f"{products / (now - since):.2f} products/s", flush=True)
            if args.rate_file and now - begun <= args.rate_seconds + args.log_seconds:
                with open(args.rate_file, "w") as file:
                    file.write(f"{in_all / (now - begun)}\n")
            products, since = 0, now


if __name__ == "__main__":
    main()
