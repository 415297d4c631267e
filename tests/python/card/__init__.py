"""A stand-in for a CUDA device, for machines without one: what a script and the hook do with `torch.cuda` is done for real.

- `record`: who asked CUDA for something, and who waited for the device: the script or the hook.
- `streams`: streams whose work takes time, and events that are reached late.
- `memory`: the numbers of the caching allocator.
- `inductor`: `torch.compile`, and what its CUDA graphs do with gradients.
- `cuda`: the functions of `torch.cuda`, which read CUDA_VISIBLE_DEVICES at the first question and fail in forked children.
- `tensors`: tensors on "cuda" in the host's memory, by a small extension that is compiled once.
- `start`: a folder for PYTHONPATH that puts all this in place while torch is imported.

It shows faults in when and where CUDA is asked, and in what is done with its answers. It says nothing about speed,
the memory of tensors, or the numbers that a GPU computes.
"""

from __future__ import annotations

import os

#: The folder that puts the stand-in in place in any Python process that has it on PYTHONPATH.
START = os.path.join(os.path.dirname(os.path.abspath(__file__)), "start")
