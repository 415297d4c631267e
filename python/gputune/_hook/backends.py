"""Settings for switches and memory layouts of torch: channels last, cuDNN's benchmark, attention kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from gputune._hook.devices import placed
from gputune._hook.modules import Treatment
from gputune._hook.parts import Hook
from gputune._hook.patching import Function, map_tensors, replace
from gputune._hook.session import CannotChange

CHANNELS_LAST = "torch.channels_last"
CUDNN_BENCHMARK = "torch.cudnn_benchmark"
SDPA = "torch.sdpa"


class ChannelsLast(Treatment):
    """The layout of four-dimensional parameters and inputs."""

    def __init__(self, hook: Hook) -> None:
        self._session = hook.session
        self._format = torch.channels_last if hook.session.value(CHANNELS_LAST) else torch.contiguous_format

    def install(self, hook: Hook) -> None:
        hook.modules.treatments.append(self)
        replace(nn.parallel.DistributedDataParallel, "__init__", self._around_distributed)

    def prepare(self, module: nn.Module) -> None:
        if any(parameter.dim() == 4 for parameter in module.parameters()):
            module.to(memory_format=self._format)
            self._session.apply(CHANNELS_LAST)

    def inputs(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        return map_tensors(args, self._arrange), map_tensors(kwargs, self._arrange)

    def _arrange(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() != 4 or not tensor.is_floating_point():
            return tensor
        return tensor.contiguous(memory_format=self._format)

    def _around_distributed(self, original: Function) -> Function:
        """Changes the layout before the gradient buckets are made: the buckets copy the layout of the parameters."""

        def __init__(parallel: Any, module: nn.Module, *args: Any, **kwargs: Any) -> None:
            self.prepare(module)
            original(parallel, module, *args, **kwargs)

        return __init__


class CudnnBenchmark(Treatment):
    """Sets whether cuDNN tries its algorithms for each new shape. Sets this again if the script changes it."""

    def __init__(self, hook: Hook) -> None:
        self._session = hook.session
        self._value = bool(hook.session.value(CUDNN_BENCHMARK))
        self._is_on_cuda = False

    def install(self, hook: Hook) -> None:
        if torch.backends.cudnn.is_available():  # true if torch was built with it; does not touch a device
            hook.optimizers.after_step.append(lambda optimizer: self._set())
            hook.modules.treatments.append(self)
            hook.changes[CUDNN_BENCHMARK] = self._change

    def _change(self, value: bool) -> None:
        self._value = bool(value)
        if self._is_on_cuda:
            self._set()
            self._session.apply(CUDNN_BENCHMARK)

    def prepare(self, module: nn.Module) -> None:
        if placed(module).device.type == "cuda":
            self._is_on_cuda = True
            self._set()
            self._session.apply(CUDNN_BENCHMARK)

    def _set(self) -> None:
        if self._is_on_cuda and torch.backends.cudnn.benchmark != self._value:
            torch.backends.cudnn.benchmark = self._value


_KERNELS = ("flash", "mem_efficient", "math", "cudnn")
#: The kernel for each value of the setting. With `None` torch may choose any kernel enabled before.
_WANTED: dict[str, str | None] = {"any": None, "memory-efficient": "mem_efficient"}
_WANTED.update((kernel, kernel) for kernel in ("flash", "math", "cudnn"))


class Attention:
    """Sets the kernel that `scaled_dot_product_attention` may use."""

    def __init__(self, hook: Hook) -> None:
        self._session = hook.session
        self._wanted = _WANTED[hook.session.value(SDPA)]
        self._allowed: dict[str, bool] = {}
        self._original: Any = None
        self._wrapper: Any = None
        self._is_called = False

    def install(self, hook: Hook) -> None:
        functional = nn.functional
        if not hasattr(functional, "scaled_dot_product_attention"):
            reason = f"torch {torch.__version__} has no scaled_dot_product_attention, which came with 2.0"
            hook.session.explain(SDPA, reason)
            return
        if self._wanted == "cudnn" and not hasattr(torch.backends.cuda, "enable_cudnn_sdp"):
            hook.session.reject(SDPA, f"torch {torch.__version__} has no attention of cuDNN, which came with 2.5")
            return
        for kernel in _KERNELS:
            is_enabled = getattr(torch.backends.cuda, f"{kernel}_sdp_enabled", None)
            self._allowed[kernel] = is_enabled is None or is_enabled()
        self._choose()
        hook.changes[SDPA] = self._change
        self._original = replace(functional, "scaled_dot_product_attention", self._around_attention)
        self._wrapper = functional.scaled_dot_product_attention
        hook.steps.checks.append(self._restore)

    def _choose(self) -> None:
        for kernel in _KERNELS:
            enable = getattr(torch.backends.cuda, f"enable_{kernel}_sdp", None)
            if enable is not None:
                enable(self._allowed[kernel] if self._wanted is None else kernel == self._wanted)

    def _change(self, value: str) -> None:
        wanted = _WANTED[value]
        if wanted is not None and not hasattr(torch.backends.cuda, f"enable_{wanted}_sdp"):
            raise CannotChange(f"torch {torch.__version__} cannot choose the attention of {value}")
        self._wanted = wanted
        self._choose()
        if self._is_called:
            self._session.apply(SDPA)

    def _around_attention(self, original: Function) -> Function:
        def scaled_dot_product_attention(*args: Any, **kwargs: Any) -> Any:
            self._is_called = True
            self._session.apply(SDPA)
            return original(*args, **kwargs)

        return scaled_dot_product_attention

    def _restore(self) -> None:
        if nn.functional.scaled_dot_product_attention is self._wrapper:
            nn.functional.scaled_dot_product_attention = self._original
