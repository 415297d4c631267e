"""Wraps `backward`: times it, and records the loss."""

from __future__ import annotations

from typing import Any, Callable

import torch

from gputune._hook.patching import Function, is_compiling, replace
from gputune._hook.steps import Steps
from gputune._hook.timeline import Phases

#: Attribute of a scaled loss that holds the unscaled loss.
UNSCALED = "_gputune_unscaled"


class Backward:
    """Wraps `torch.autograd.backward`, which `Tensor.backward` calls."""

    def __init__(self, phases: Phases, steps: Steps) -> None:
        self._phases = phases
        self._steps = steps
        self.is_inside = False
        self.scale: list[Callable[[torch.Tensor, bool], torch.Tensor]] = []
        """Changes of the loss before backward: division for accumulation, scaling for fp16.

        The second argument is true if the script has scaled the loss."""

        self.after: list[Callable[[], None]] = []
        """Called after a backward pass without errors."""

    def install(self) -> None:
        replace(torch.autograd, "backward", self._around_backward)
        for owner in scaler_classes():
            replace(owner, "scale", self._around_scale)
            replace(owner, "__init__", self._around_scaler)

    def _around_backward(self, original: Function) -> Function:
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if self.is_inside or is_compiling():  # checkpointing calls backward within backward
                return original(tensors, *args, **kwargs)
            first = tensors if isinstance(tensors, torch.Tensor) else _only(tensors)
            self._phases.decide(None if first is None else first.device)
            if first is not None and first.numel() == 1 and not _has_gradients(args, kwargs):
                unscaled = getattr(first, UNSCALED, None)
                self._steps.add_loss(first if unscaled is None else unscaled)
                for scale in self.scale:
                    first = scale(first, unscaled is not None)
                tensors = first
            self.is_inside = True
            self._phases.enter("backward")
            try:
                original(tensors, *args, **kwargs)
            except Exception as error:
                self._steps.note_failure(error)
                raise
            finally:
                self._phases.leave()
                self.is_inside = False
            for call in self.after:
                call()

        return backward

    def _around_scaler(self, original: Function) -> Function:
        """Finds subclasses with their own `scale`, such as FSDP's scaler, when an instance is made."""

        def __init__(scaler: Any, *args: Any, **kwargs: Any) -> None:
            original(scaler, *args, **kwargs)
            scale = vars(type(scaler)).get("scale")
            if scale is not None and not hasattr(scale, "__wrapped__"):
                replace(type(scaler), "scale", self._around_scale)

        return __init__

    def _around_scale(self, original: Function) -> Function:
        def scale(scaler: Any, outputs: Any) -> Any:
            scaled = original(scaler, outputs)
            if isinstance(scaled, torch.Tensor) and scaled is not outputs:
                setattr(scaled, UNSCALED, outputs.detach())
            return scaled

        return scale


def scaler_classes() -> list[Any]:
    """The class that defines GradScaler: `torch.amp` has it for all devices since torch 2.3, else `torch.cuda.amp`."""
    modules = (getattr(torch, "amp", None), getattr(torch.cuda, "amp", None))
    found = (getattr(module, "GradScaler", None) for module in modules)
    return [kind for kind in found if kind is not None][:1]


def _only(tensors: Any) -> Any:
    """The tensor of a sequence of length one; several tensors are not one loss."""
    if isinstance(tensors, (list, tuple)) and len(tensors) == 1 and isinstance(tensors[0], torch.Tensor):
        return tensors[0]
    return None


def _has_gradients(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """True if the caller passes gradients, so that the tensor is no loss."""
    return (bool(args) and args[0] is not None) or kwargs.get("grad_tensors") is not None
