"""Not a training script: keeps cores busy beside one, as another user of the machine would."""

import argparse
import multiprocessing
import os
import time


def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(10_000))


def spin_gpu(seconds):
    import torch

    matrix = torch.randn(4096, 4096, device="cuda")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        matrix = torch.nn.functional.normalize(matrix @ matrix)
        torch.cuda.synchronize()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--gpu", action="store_true", help="keep the first GPU busy instead")
    args = parser.parse_args()
    if args.gpu:
        return spin_gpu(args.seconds)
    processes = [multiprocessing.Process(target=spin, args=(args.seconds,), daemon=True) for _ in range(args.cores)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
