"""`torch.precision`: the dtype of autocast and TF32 as one setting."""

from __future__ import annotations

import inspect
import warnings
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Optional

import torch
from torch import nn

from gputune._hook.modules import Treatment
from gputune._hook.patching import Function, map_tensors, replace
from gputune._hook.scaling import LossScaling, scaler_classes

if TYPE_CHECKING:
    from gputune._hook.install import Hook

PRECISION = "torch.precision"

_DTYPES = {"fp32": None, "tf32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


class Precision(Treatment):
    """Gives the script's autocast regions the wanted dtype; where there are none the trained modules run in one."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._session = hook.session
        self._value: str = hook.session.value(PRECISION)
        self._dtype: Optional[torch.dtype] = _DTYPES[self._value]
        self._has_cuda = torch.cuda.is_available()
        self._device = "cuda" if self._has_cuda else "cpu"
        self._is_ours = False  # the region that the module runs in

    def install(self) -> None:
        replace(torch.autocast, "__enter__", self._around_enter)
        for owner in scaler_classes():
            replace(owner, "__init__", self._around_scaler)
        if self._value == "fp16":
            LossScaling(self._hook).install()
        self._set_tf32()
        self._hook.optimizers.after_step.append(lambda optimizer: self._set_tf32())
        self._hook.modules.treatments.append(self)

    def prepare(self, module: nn.Module) -> None:
        parameter = next(module.parameters())
        self._device = parameter.device.type
        self._set_tf32()
        reason = self._refusal()
        if reason is not None:
            self._session.reject(PRECISION, reason)
        elif parameter.dtype not in (torch.float32, torch.float64):
            self._session.explain(
                PRECISION,
                f"the parameters of {type(module).__name__} are {parameter.dtype}: the script converts the model "
                "itself; leave it in float32, as autocast needs it",
            )
        elif self._dtype is None:
            self._session.apply(PRECISION)

    def surround(self, stack: ExitStack) -> None:
        self._is_ours = self._dtype is not None and not _is_autocast(self._device)
        if self._is_ours and self._refusal() is None:
            stack.enter_context(torch.autocast(self._device, dtype=self._dtype))

    def outputs(self, outputs: Any) -> Any:
        """As full precision, which the script's own loss expects."""
        return map_tensors(outputs, _widen) if self._is_ours else outputs

    def _refusal(self) -> Optional[str]:
        """Why the device cannot compute so."""
        if self._value == "tf32" and self._device != "cuda":
            return f"TF32 exists on NVIDIA GPUs only, and the model is on the {self._device}"
        if self._value == "tf32" and torch.cuda.get_device_capability()[0] < 8:
            return "TF32 needs a GPU of compute capability 8.0 or later"
        if self._dtype is None:
            return None
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            try:
                region = torch.autocast(self._device, dtype=self._dtype)
            except RuntimeError as error:
                return str(error)
        if region._enabled:
            return None
        return f"autocast of torch {torch.__version__} has no {self._dtype} on the {self._device}"

    def _around_enter(self, original: Function) -> Function:
        def __enter__(region: Any) -> Any:
            if region.device == self._device and not self._hook.backward.is_inside:  # where regions are restored
                self._override(region)
            return original(region)

        return __enter__

    def _override(self, region: Any) -> None:
        """Nested regions that are off stay off: a model protects sensitive parts so."""
        own = region.__dict__.setdefault("_gputune_own", (region._enabled, region.fast_dtype))
        is_nested = self._hook.modules.is_inside or _is_autocast(self._device)
        region._enabled = self._dtype is not None and (own[0] or not is_nested)
        if region._enabled:
            region.fast_dtype = self._dtype
            if torch.is_grad_enabled():
                self._session.apply(PRECISION)

    def _around_scaler(self, original: Function) -> Function:
        signature = inspect.signature(original)

        def __init__(scaler: Any, *args: Any, **kwargs: Any) -> None:
            bound = signature.bind(scaler, *args, **kwargs)
            bound.arguments["enabled"] = self._value == "fp16"
            original(*bound.args, **bound.kwargs)

        return __init__

    def _set_tf32(self) -> None:
        """Also after the script has set it otherwise. Without a GPU the same switches mean something else."""
        if not self._has_cuda:
            return
        is_on = self._value != "fp32"
        try:
            if torch.backends.cuda.matmul.allow_tf32 != is_on:
                torch.set_float32_matmul_precision("high" if is_on else "highest")
            if torch.backends.cudnn.allow_tf32 != is_on:
                torch.backends.cudnn.allow_tf32 = is_on
        except RuntimeError:  # torch 2.9 and later refuse these switches once the script has used their successors
            wanted = "tf32" if is_on else "ieee"
            torch.backends.cuda.matmul.fp32_precision = wanted
            torch.backends.cudnn.conv.fp32_precision = wanted
            torch.backends.cudnn.rnn.fp32_precision = wanted


def _widen(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _is_autocast(device: str) -> bool:
    try:
        return torch.is_autocast_enabled(device)
    except TypeError:  # before torch 2.4
        return torch.is_autocast_enabled() if device == "cuda" else torch.is_autocast_cpu_enabled()
