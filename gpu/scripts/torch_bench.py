"""What PyTorch reaches on this GPU: products of matrices in each precision, and copies. Prints JSON.

Warm-up, samples and times are those of `gputune device --bench` (src/machine/ceilings/sample.rs): a burst after a rest runs at
clocks that do not last.
"""

import argparse
import json
import statistics
import time

import torch

DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
WARMUP_SECONDS, SAMPLE_SECONDS, LIMIT_SECONDS, SAMPLES = 0.4, 0.02, 1.8, 40


def by_device(work, repetitions):
    """Seconds of so many repetitions, by events on the device."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(repetitions):
        work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1000


def by_host(work, repetitions):
    """Seconds by the host's clock: a copy from ordinary memory occupies the processor, too."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repetitions):
        work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def seconds(work, timed, limit):
    """The median time of one repetition over samples after a warm-up."""
    begun, repetitions = time.perf_counter(), 1
    while True:
        sample, passed = timed(work, repetitions), time.perf_counter() - begun
        is_long = sample >= SAMPLE_SECONDS
        if (is_long and passed >= WARMUP_SECONDS) or passed >= limit / 2:
            break
        repetitions *= 1 if is_long else 2
    samples = []
    while not samples or (len(samples) < SAMPLES and time.perf_counter() - begun < limit):
        samples.append(timed(work, repetitions) / repetitions)
    return statistics.median(samples)


def product(precision, size, limit):
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    left, right = (torch.rand(size, size, device="cuda").mul(2).sub(1).to(DTYPES[precision]) for _ in range(2))
    result = torch.empty_like(left)
    return 2 * size**3 / seconds(lambda: torch.mm(left, right, out=result), by_device, limit)


def host_memory(count, pinned):
    """Memory that was written: pages that never were are all the same page of zeros, which the cache holds."""
    memory = torch.empty(count, dtype=torch.uint8, pin_memory=pinned)
    return memory.fill_(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=8192)
    parser.add_argument("--seconds", type=float, default=LIMIT_SECONDS, help="for each, warm-up included")
    parser.add_argument("--copy-mib", type=int, default=1024)
    args = parser.parse_args()
    found = {precision: product(precision, args.size, args.seconds) for precision in DTYPES}
    source = torch.randint(0, 255, (args.copy_mib << 20,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    found["copy_on_device"] = 2 * source.numel() / seconds(lambda: target.copy_(source), by_device, args.seconds)
    for name, pinned in (("pinned", True), ("pageable", False)):
        host = host_memory(min(256, args.copy_mib) << 20, pinned)
        part = target[: host.numel()]
        copy = seconds(lambda: part.copy_(host, non_blocking=pinned), by_host, args.seconds)
        found[f"to_device_{name}"] = host.numel() / copy
    print(json.dumps(found))


if __name__ == "__main__":
    main()
