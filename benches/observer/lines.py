"""What looking at the lines of a script costs: the same steps with and without the sampler, in turn, in one process.

usage: lines.py [ROUNDS]

Each round has half a second with it and half a second without, either first as often. Prints medians of the rate, and the mean of the
pairs' ratios with its 95 % interval. `benches/results/observer.md` keeps a run.
"""

import statistics
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
from gputune._hook import lines, training_stacks  # noqa: E402

SECONDS = 0.5
rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
torch.manual_seed(0)
torch.set_num_threads(1)
images, labels = torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))
model = nn.Sequential(
    nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(64 * 8 * 8, 10),
)  # fmt: skip
optimizer = torch.optim.AdamW(model.parameters())
small = nn.Sequential(*(nn.Linear(4, 4) for _ in range(20)))


def large_kernels():
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()


def small_kernels():
    small(torch.zeros(8, 4)).sum().backward()


def python_alone():
    return sum(number * number for number in range(20_000))


def rate(step):
    begin = time.perf_counter()
    steps = 0
    while time.perf_counter() - begin < SECONDS:
        step()
        steps += 1
    return steps / (time.perf_counter() - begin)


def nothing():
    """Stands for functions of the hook that these steps do not call."""


def main():
    parts = SimpleNamespace(train=nothing, evaluate=nothing, end_step=nothing, is_for_training=True)
    hook = SimpleNamespace(modules=parts, steps=parts, loaders=parts)
    print("| steps | steps/s without, median | with, median | with / without, mean of pairs | 95 % interval | looks/s |")
    print("|---|--:|--:|--:|--:|--:|")
    for step in (large_kernels, small_kernels, python_alone):
        rate(step)
        pairs, looks = [], 0
        for number in range(rounds):
            with_it, without = 0.0, 0.0
            for is_on in (True, False) if number % 2 else (False, True):
                if not is_on:
                    without = rate(step)
                    continue
                thread = threading.get_ident()
                sampler = lines.Sampler(thread, training_stacks.TrainingStacks(thread, hook).seen)
                sampler.start()
                with_it = rate(step)
                sampler.stop()
                looks += sum(row[5] for row in sampler.table.rows())
            pairs.append((without, with_it))
        ratios = [on / off for off, on in pairs]
        half = 1.96 * statistics.stdev(ratios) / len(ratios) ** 0.5
        off, on = (statistics.median(numbers) for numbers in zip(*pairs))
        mean = statistics.mean(ratios)
        name = step.__name__.replace("_", " ")
        print(f"| {name} | {off:.1f} | {on:.1f} | {mean:.4f} | {mean - half:.4f} to {mean + half:.4f} | {looks / rounds / SECONDS:.0f} |")


if __name__ == "__main__":
    main()
