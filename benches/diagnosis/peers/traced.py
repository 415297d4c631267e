"""A script of examples/sick with TraceML's calls in its training loop: traceml run traced.py --args SCRIPT [OPTION ...]

The loop is that of `examples/sick/common.py`; the lines that TraceML asks for in a plain PyTorch loop (its README) are marked."""

import sys

import torch
import traceml_ai as traceml  # TraceML's
from torch.nn import functional as F

import sick


def train(args, loader, model, each_step=None):
    torch.set_num_threads(args.threads)
    traceml.init(mode="auto")  # TraceML's
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    step = 0
    while step < args.steps:
        for inputs, labels in loader:
            with traceml.trace_step(model):  # TraceML's
                outputs = model(inputs)
                loss = F.cross_entropy(outputs, labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if each_step is not None:
                    each_step(step + 1, model, outputs, labels, loss)
            step += 1
            if step == args.steps:
                break


if __name__ == "__main__":
    sick.run_with(train, sys.argv[1:])
