"""`torch.precision`: the dtype of autocast and of weights, and TF32, as one setting."""

from __future__ import annotations

import inspect
import warnings
import weakref
from contextlib import ExitStack
from typing import Any, Optional

import torch
from torch import nn

from gputune._hook.backward import scaler_classes
from gputune._hook.devices import is_in_use, placed
from gputune._hook.modules import Treatment
from gputune._hook.parts import Hook
from gputune._hook.patching import Function, map_tensors, replace
from gputune._hook.replaying import tensors_in
from gputune._hook.scaling import LossScaling
from gputune._hook.session import CannotChange
from gputune._hook.weights import FP8, PURE_BF16, convert, refusal

PRECISION = "torch.precision"

#: The dtype of autocast regions for each value of the setting. `None` turns autocast off.
_DTYPES = {
    "fp32": None, "tf32": None, "bf16": torch.bfloat16, "fp16": torch.float16, PURE_BF16: None, FP8: torch.bfloat16
}  # fmt: skip

#: Settings that a process cannot change to or from while it trains, with the reason.
_FIXED = {
    "fp16": "fp16 needs a GradScaler, which a script makes when it starts",
    PURE_BF16: "the weights are converted when training starts",
    FP8: "the layers are converted when training starts",
}


class Precision(Treatment):
    """Sets the dtype of the script's autocast regions; without such regions, runs the trained modules in a region."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._session = hook.session
        self._value: str = hook.session.value(PRECISION)
        self._dtype: Optional[torch.dtype] = _DTYPES[self._value]
        self._kind: Optional[str] = None  # device kind of the last called trained module
        self._ran_on: set[str] = set()  # kinds of devices on which training ran in this precision
        self._seen: set[str] = set()  # kinds of devices whose abilities are known
        self._refusals: dict[str, str] = {}  # reasons why a kind of device lacks this precision
        self._is_ours = False  # the current call runs in a region that the hook has added
        self._converted: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # modules that the hook has converted

    def install(self) -> None:
        replace(torch.autocast, "__enter__", self._around_enter)
        for owner in scaler_classes():
            replace(owner, "__init__", self._around_scaler)
        if self._value == "fp16":
            LossScaling(self._hook, PRECISION).install()
        self._hook.optimizers.after_step.append(lambda optimizer: self._set_tf32())
        self._hook.modules.treatments.append(self)
        self._hook.phases.changed.append(self._decide)
        self._hook.steps.checks.append(self._judge)
        self._hook.changes[PRECISION] = self._change

    def _change(self, value: str) -> None:
        """Changes the precision between two steps. Raises `CannotChange` for a setting in `_FIXED`."""
        for fixed in (value, self._value):
            if fixed in _FIXED:
                raise CannotChange(_FIXED[fixed])
        self._value, self._dtype = value, _DTYPES[value]
        self._ran_on.clear()
        self._refusals.clear()
        kind = self._kind or "cpu"
        self._set_tf32()
        reason = self._refusal(kind)
        if reason is not None:
            self._refusals[kind] = reason
            self._judge()
        elif self._dtype is None:
            self._note_run(kind)

    def prepare(self, module: nn.Module) -> None:
        """Checks a module's device and dtype. `_judge` decides later, as the module may move to another device."""
        parameter = placed(module)
        self._look_at(parameter.device.type)
        is_new = module not in self._converted
        if is_new and self._kind not in self._refusals and parameter.dtype not in (torch.float32, torch.float64):
            self._session.explain(
                PRECISION,
                f"the parameters of {type(module).__name__} are {parameter.dtype}: the script converts the model "
                "itself; leave it in float32, as autocast needs it",
            )
            return
        if is_new and self._value in (PURE_BF16, FP8) and self._kind not in self._refusals:
            self._convert(module)
        self._note_full()

    def _convert(self, module: nn.Module) -> None:
        reason = convert(self._value, module, _widened)
        if reason is not None:
            self._refusals[self._kind or ""] = reason
            return
        self._converted.add(module)

    def _decide(self, device: torch.device) -> None:
        """Checks the training device once it is known. The parameters may still be on the CPU."""
        if device.type not in self._seen:
            self._look_at(device.type)
            self._note_full()
        self._judge()

    def _look_at(self, kind: str) -> None:
        self._kind = kind
        self._seen.add(kind)
        self._set_tf32()
        reason = self._refusal(kind)
        if reason is not None:
            self._refusals[kind] = reason

    def _note_full(self) -> None:
        """Notes for fp32, TF32 and pure bf16 that training runs in this precision, as they need no autocast region."""
        if self._dtype is None and self._kind is not None and self._kind not in self._refusals:
            self._note_run(self._kind)

    def surround(self, stack: ExitStack) -> None:
        called_on = self._hook.phases.called_on
        kind = self._kind = "cpu" if called_on is None else called_on.type
        self._is_ours = self._dtype is not None and kind not in self._refusals and not _is_autocast(kind)
        if self._is_ours:
            stack.enter_context(torch.autocast(kind, dtype=self._dtype))

    def outputs(self, outputs: Any) -> Any:
        """Converts the outputs to full precision, which the script's own loss expects."""
        return _widen_all(outputs) if self._is_ours else outputs

    def _note_run(self, kind: str) -> None:
        """Notes that training runs in this precision on this kind of device."""
        if kind not in self._ran_on:
            self._ran_on.add(kind)
            if self._session.is_checked:
                self._judge()

    def _judge(self) -> None:
        """Reports the setting as applied or rejected for the training device, once it is known."""
        device = self._hook.phases.device
        kind = self._kind if device is None else device.type
        if kind in self._refusals:
            self._session.reject(PRECISION, self._refusals[kind])
        elif kind in self._ran_on:
            self._session.apply(PRECISION)

    def _refusal(self, kind: str) -> Optional[str]:
        """The reason why this kind of device lacks this precision, else `None`."""
        if self._value == "tf32" and kind != "cuda":
            return f"TF32 exists on NVIDIA GPUs only, and the model is on the {kind}"
        if self._value == "tf32" and torch.cuda.get_device_capability()[0] < 8:
            return "TF32 needs a GPU of compute capability 8.0 or later"
        reason = refusal(self._value, kind)
        if reason is not None or self._dtype is None:
            return reason
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            try:
                region = torch.autocast(kind, dtype=self._dtype)
            except RuntimeError as error:
                return str(error)
        if region._enabled:
            return None
        return f"autocast of torch {torch.__version__} has no {self._dtype} on the {kind}"

    def _around_enter(self, original: Function) -> Function:
        def __enter__(region: Any) -> Any:
            # Within backward, torch enters the regions of the forward pass again, which the hook has already set.
            if self._may_train(region.device) and not self._hook.backward.is_inside:
                self._override(region)
            return original(region)

        return __enter__

    def _may_train(self, kind: str) -> bool:
        """True if a region for this kind of device may contain training."""
        device = self._hook.phases.device
        if device is not None:
            return kind == device.type
        return kind == self._kind or (is_in_use(kind) and (kind != "cpu" or self._kind is None))

    def _override(self, region: Any) -> None:
        """Sets a region's dtype. Nested regions that are off stay off, as they protect sensitive parts of a model."""
        own = region.__dict__.setdefault("_gputune_own", (region._enabled, region.fast_dtype))
        is_nested = self._hook.modules.is_inside or _is_autocast(region.device)
        region._enabled = self._dtype is not None and (own[0] or not is_nested)
        if region._enabled:
            region.fast_dtype = self._dtype
            if torch.is_grad_enabled():
                self._note_run(region.device)

    def _around_scaler(self, original: Function) -> Function:
        signature = inspect.signature(original)

        def __init__(scaler: Any, *args: Any, **kwargs: Any) -> None:
            bound = signature.bind(scaler, *args, **kwargs)
            bound.arguments["enabled"] = self._value == "fp16"
            original(*bound.args, **bound.kwargs)

        return __init__

    def _set_tf32(self) -> None:
        """Sets TF32. Each step calls this again, as the script may have changed TF32.

        Skips the CPU, where the switches differ in meaning.
        """
        if self._kind == "cuda":
            set_tf32(self._value != "fp32")


def set_tf32(is_on: bool) -> None:
    """Sets TF32 for matrix products, convolutions and recurrent layers, by the old and the new switches of torch.

    Torch 2.9 added a switch `fp32_precision` for each old switch. Reading an old switch raises if the two differ. The
    old setter of matrix products does nothing if its own value stays the same, so it gets the opposite value first. The
    new switches are set last: the old switches let convolutions inherit the value of a parent switch, which may be
    "tf32" (pytorch's `aten/src/ATen/Context.cpp`).
    """
    wanted = "tf32" if is_on else "ieee"
    products, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    switches = (products, cudnn.conv, cudnn.rnn) if hasattr(products, "fp32_precision") else ()
    try:
        is_set = products.allow_tf32 == cudnn.allow_tf32 == is_on
    except RuntimeError:
        is_set = False
    if is_set and all(switch.fp32_precision == wanted for switch in switches):
        return
    for is_high in (not is_on, is_on):
        torch.set_float32_matmul_precision("high" if is_high else "highest")
    cudnn.allow_tf32 = is_on
    for switch in switches:
        switch.fp32_precision = wanted


def _widen_all(outputs: Any) -> Any:
    """Converts all outputs to float32, or only the loss if the module computes it.

    In that case converting the other outputs, such as the logits of a language model, would double their memory.
    """
    has_loss = _has_loss(outputs)
    return map_tensors(outputs, lambda tensor: tensor if has_loss and tensor.dim() > 0 else _widen(tensor))


def _widened(module: nn.Module, args: Any, outputs: Any) -> Any:
    """A forward hook that converts the outputs to float32."""
    return _widen_all(outputs)


def _has_loss(outputs: Any) -> bool:
    """True if the outputs contain the loss, so that the script need not compute it.

    In a dict only the entry `loss` counts. In a named tuple with a field `loss`, only that field counts. Other scalars,
    such as the `aux_loss` of a mixture of experts, are only added to a loss.
    """
    if isinstance(outputs, dict):
        outputs = outputs.get("loss")
    elif hasattr(outputs, "_fields"):
        outputs = getattr(outputs, "loss", outputs)
    return any(tensor.dim() == 0 and tensor.requires_grad for tensor in tensors_in(outputs))


def _widen(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _is_autocast(device: str) -> bool:
    try:
        return torch.is_autocast_enabled(device)
    except TypeError:  # before torch 2.4
        return torch.is_autocast_enabled() if device == "cuda" else torch.is_autocast_cpu_enabled()
