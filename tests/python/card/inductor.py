"""Replaces Inductor, the compiler of `torch.compile`: the graphs that Dynamo finds run uncompiled.

In the modes with CUDA graphs, a gradient that the backward pass creates is in the memory of the graph. The next run makes
it unusable, as `dealloc_current_path_weakrefs` in `torch/_inductor/cudagraph_trees.py` does.
"""

from __future__ import annotations

import weakref
from typing import Any, Optional

_OVERWRITTEN = (
    "Error: accessing gradient tensor output of CUDAGraphs that has been overwritten by a subsequent run. If you need gradient "
    "accumulation, allocate stable .grad buffers outside CUDAGraph capture before the compiled backward runs."
)


class _Graphed:
    """A compiled function whose outputs are in the memory of its graph."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self._nodes: dict[int, Any] = {}  # AccumulateGrad nodes by tensor, which no tensor keeps alive
        self._outputs: list[weakref.ref[Any]] = []

    def __call__(self, *inputs: Any) -> Any:
        import torch

        outputs, self._outputs = self._outputs, []
        for output in [output() for output in outputs]:
            if output is not None:
                torch._C._set_storage_access_error_msg(output, _OVERWRITTEN)
        for tensor in inputs:
            if isinstance(tensor, torch.Tensor) and tensor.is_leaf and tensor.requires_grad:
                self._watch(tensor)
        return self._function(*inputs)

    def _watch(self, leaf: Any) -> None:
        import torch

        if id(leaf) in self._nodes or not torch.is_grad_enabled():
            return
        node = self._nodes[id(leaf)] = leaf.view_as(leaf).grad_fn.next_functions[0][0]
        had_gradient = False

        def before(_: Any) -> None:
            nonlocal had_gradient
            had_gradient = leaf.grad is not None

        def after(*_: Any) -> None:
            if not had_gradient and leaf.grad is not None:
                self._outputs.append(weakref.ref(leaf.grad))

        node.register_prehook(before)
        node.register_hook(after)


def install(compile_fx: Any) -> None:
    """Replaces the compiler in `torch._inductor.compile_fx`."""

    def compiled(model: Any, inputs: Any, *args: Any, config_patches: Optional[dict[str, Any]] = None, **kwargs: Any) -> Any:
        has_graphs = (config_patches or {}).get("triton.cudagraphs", False)
        return _Graphed(model) if has_graphs else model

    compile_fx.compile_fx = compiled
