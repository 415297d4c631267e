"""Prints facts about CUDA through PyTorch, a line of JSON each: memory by the driver and the allocator, and latencies."""

import argparse
import json
import time

import torch

REPEATS = 200


def per_call(work, count=REPEATS):
    """Microseconds of a call, the mean of many."""
    begun = time.perf_counter()
    for _ in range(count):
        work()
    return round(1e6 * (time.perf_counter() - begun) / count, 2)


def mem_get_info(_):
    begun = time.perf_counter()
    free, total = torch.cuda.mem_get_info()
    return {"value": [free, total], "us": round(1e6 * (time.perf_counter() - begun), 1)}


def memory_stats(device):
    held = torch.ones(1 << 24, device=device)
    begun = time.perf_counter()
    stats = torch.cuda.memory_stats()
    taken = round(1e6 * (time.perf_counter() - begun), 1)
    names = ("num_alloc_retries", "num_ooms", "allocated_bytes.all.peak", "reserved_bytes.all.peak")
    return {"value": {name: stats.get(name) for name in names}, "held": held.nbytes, "names": sorted(stats), "us": taken}


def event_record(_):
    event = torch.cuda.Event(enable_timing=True)
    return {"us": per_call(event.record)}


def event_elapsed(_):
    """The time between two events with nothing between them, and what asking for it takes."""
    first, second = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    second.record()
    torch.cuda.synchronize()
    return {"value_ms": first.elapsed_time(second), "us": per_call(lambda: first.elapsed_time(second))}


def event_query(_):
    event = torch.cuda.Event()
    event.record()
    torch.cuda.synchronize()
    return {"us": per_call(event.query)}


def synchronize(_):
    return {"us": per_call(torch.cuda.synchronize)}


def launch(device):
    number = torch.zeros(1, device=device)
    number.add_(1)
    torch.cuda.synchronize()
    taken = per_call(lambda: number.add_(1))
    torch.cuda.synchronize()
    return {"us": taken}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    device = parser.parse_args().device
    for fact in (mem_get_info, memory_stats, event_record, event_elapsed, event_query, synchronize, launch):
        try:
            found = fact(device)
        except Exception as error:  # each fact counts alone
            found = {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
        print(json.dumps({"fact": fact.__name__, **found}), flush=True)


if __name__ == "__main__":
    main()
