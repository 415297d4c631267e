"""What python-constraint2, the solver behind Kernel Tuner's search space, makes of the spaces of benches/space.rs.

pip install python-constraint2==2.9.0, then: python benches/space_peer.py. Each question has 60 seconds.
"""

import multiprocessing
import statistics
import time

import constraint

LIMIT = 60


def powers(low, high):
    return [1 << bit for bit in range(low.bit_length() - 1, high.bit_length())]


def ranges(name, count, first, last):
    return {f"{name}{at}": list(range(first, last + 1)) for at in range(count)}


def total(name, count):
    return " + ".join(f"{name}{at}" for at in range(count))


PARALLEL = {
    "batch_size": powers(1, 1024),
    "micro": powers(1, 1024),
    "dp": powers(1, 64),
    "tp": [1, 2, 4, 8],
    "pp": [1, 2, 4, 8],
    "workers": list(range(17)),
    "prefetch": list(range(1, 9)),
    "zero": list(range(4)),
}
WIDE = list(range(1, 100_001))
CONVOLUTION = {
    "bx": [at * 4 for at in range(1, 33)],
    "by": powers(1, 32),
    "tx": list(range(1, 17)),
    "ty": list(range(1, 17)),
    "shared": [0, 1],
    "unroll": list(range(1, 17)),
    "pad": list(range(7)),
}
QUEENS = [f"q{a} != q{b} and abs(q{a} - q{b}) != {a - b}" for a in range(8) for b in range(a)]
CASES = {
    "parallel": (PARALLEL, ["dp * tp * pp == 64", "batch_size == 1024 and zero == 3"]),
    "digits": (ranges("d", 12, 0, 9), [f"{total('d', 12)} >= 80"]),
    "digits, none": (ranges("d", 12, 0, 9), [f"{total('d', 12)} >= 109"]),
    "product": ({name: WIDE for name in ("batch", "micro", "accum", "dp")}, ["batch == micro * accum * dp"]),
    "divisor": (ranges("x", 2, 1, 100_000), ["x0 % x1 == 0"]),
    "plane": (ranges("x", 3, 1, 100_000), ["x0 + x1 + x2 == 150000"]),
    "queens": (ranges("q", 8, 1, 8), QUEENS),
    "convolution": (
        CONVOLUTION,
        ["bx * by >= 32", "bx * by <= 1024", "tx * ty <= 32", "(bx * tx) % 16 == 0", "shared * bx * ty <= 4096"],
    ),
}


def problem(case):
    parameters, rules = CASES[case]
    made = constraint.Problem()
    for name, values in parameters.items():
        made.addVariable(name, values)
    for rule in rules:
        made.addConstraint(rule)
    return made


def answer(case, question, pipe):
    begin = time.perf_counter()
    made = problem(case)
    if question == "first":
        found = made.getSolution() is not None
    else:
        found = len(made.getSolutions())
    pipe.send((time.perf_counter() - begin, found))


def ask(case, question):
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=answer, args=(case, question, there))
    process.start()
    told = here.recv() if here.poll(LIMIT) and process.is_alive() or here.poll() else None
    process.kill()
    process.join()
    return told


def shown(case, question):
    times = []
    for _ in range(3):
        try:
            told = ask(case, question)
        except EOFError:
            told = None
        if told is None:
            return f"more than {LIMIT} s, or no memory"
        times.append(told[0])
    return f"{statistics.median(times) * 1e3:.2f} ({told[1]})"


if __name__ == "__main__":
    print("medians of 3 rounds; milliseconds\n\n| space | to the first or to none | all, listed |\n|---|--:|--:|")
    for name in CASES:
        print(f"| {name} | {shown(name, 'first')} | {shown(name, 'all')} |", flush=True)
