"""What PyTorch reaches on this GPU: products of matrices in each precision, and copies. Prints JSON."""

import argparse
import json
import statistics

import torch

DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def seconds(work, repeats):
    """The median over repeats, by events on the device, after a warm-up."""
    for _ in range(3):
        work()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        work()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1000)
    return statistics.median(times)


def product(precision, size, repeats):
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    left, right = (torch.randn(size, size, device="cuda").to(DTYPES[precision]) for _ in range(2))
    result = torch.empty_like(left)
    return 2 * size**3 / seconds(lambda: torch.mm(left, right, out=result), repeats)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=8192)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--copy-mib", type=int, default=1024)
    args = parser.parse_args()
    found = {precision: product(precision, args.size, args.repeats) for precision in DTYPES}
    source = torch.randint(0, 255, (args.copy_mib << 20,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    found["copy_on_device"] = 2 * source.numel() / seconds(lambda: target.copy_(source), args.repeats)
    for name, pinned in (("pinned", True), ("pageable", False)):
        host = torch.empty(256 << 20, dtype=torch.uint8, pin_memory=pinned)
        part = target[: host.numel()]
        found[f"to_device_{name}"] = host.numel() / seconds(lambda: part.copy_(host, non_blocking=pinned), args.repeats)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
