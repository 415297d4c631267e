"""A stand-in for a CUDA device, for machines without a GPU. Scripts and the hook use it through `torch.cuda`.

- `record`: a log of who called CUDA and who waited for the device, the script or the hook.
- `streams`: streams whose work takes time, and events that complete late.
- `memory`: the numbers of the caching allocator.
- `inductor`: `torch.compile`, and its CUDA graphs, which overwrite gradients.
- `cuda`: the functions of `torch.cuda`. They read CUDA_VISIBLE_DEVICES at the first call, and fail in forked children.
- `tensors`: tensors on "cuda" in the host's memory, by a small extension that is compiled once.
- `start`: a folder for PYTHONPATH that installs all this while torch is imported.

It reveals calls of CUDA at a wrong time or in a wrong process, and wrong use of their results. It says nothing about
speed, the memory of tensors, or the numbers that a GPU computes.
"""

from __future__ import annotations

import os

#: A Python process with this folder on PYTHONPATH uses the stand-in.
START = os.path.join(os.path.dirname(os.path.abspath(__file__)), "start")
