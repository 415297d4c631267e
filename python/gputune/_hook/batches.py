"""Finds the tensors of a batch, and the number of samples from their shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

import torch

#: Most levels of nested containers that are searched. A round number; the limit also holds for a batch that contains
#: itself.
_DEPTH = 8


def samples_in(batch: Any, expected: Optional[int] = None) -> Optional[int]:
    """The leading dimension of the first tensor in `batch`, also within containers.

    `expected` is the batch size of the loader. The result is `expected` if the batch is a list of that length, or a
    tuple of lists of that length. Collate functions for images of several sizes make such batches.
    """
    found = _leading(batch)
    if expected is None or found == expected or not isinstance(batch, (list, tuple)) or not batch:
        return found
    if len(batch) == expected or (isinstance(batch[0], (list, tuple)) and len(batch[0]) == expected):
        return expected
    return found


def samples_in_call(args: Any, kwargs: Any) -> Optional[int]:
    """The leading dimension of the tensors that a module is called with; `None` if the tensors differ.

    If they differ, the sample dimension is unknown: in recurrent networks and transformers the first may be time.
    """
    sizes = {size for size in map(_leading, (*args, *kwargs.values())) if size is not None}
    return sizes.pop() if len(sizes) == 1 else None


def _leading(value: Any, depth: int = _DEPTH) -> Optional[int]:
    if isinstance(value, torch.nn.utils.rnn.PackedSequence):
        return int(value.batch_sizes[0])
    shape = getattr(value, "shape", None)  # tensors, and arrays of other libraries
    if shape is not None:
        try:
            return int(shape[0]) if len(shape) > 0 else None
        except TypeError:
            return None
    graphs = getattr(value, "num_graphs", None)  # a batch of PyTorch Geometric is one large graph
    if isinstance(graphs, int):
        return graphs
    if isinstance(value, Mapping):
        return _first(value.values(), depth)
    if isinstance(value, (list, tuple)):
        return _first(value, depth)
    if isinstance(value, (str, bytes, int, float, type(None))):
        return None
    return _first(getattr(value, "__dict__", {}).values(), depth)


def _first(values: Any, depth: int) -> Optional[int]:
    for value in values if depth > 0 else ():
        found = _leading(value, depth - 1)
        if found is not None:
            return found
    return None


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors of a batch, also within containers and objects."""
    found: list[torch.Tensor] = []
    _collect(value, found, _DEPTH)
    return found


def _collect(value: Any, found: list[torch.Tensor], depth: int) -> None:
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif depth > 0:
        if isinstance(value, (list, tuple)):
            parts: Any = value
        elif hasattr(value, "values") and hasattr(value, "keys"):
            parts = value.values()
        else:
            parts = getattr(value, "__dict__", {}).values()
        for part in parts:
            _collect(part, found, depth - 1)
