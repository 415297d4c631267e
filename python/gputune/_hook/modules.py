"""Finds the trained modules, and wraps their calls."""

from __future__ import annotations

import weakref
from contextlib import ExitStack
from typing import Any, Optional

import torch
from torch import nn

from gputune._client import Reporter
from gputune._hook import devices
from gputune._hook.batches import tensors_in
from gputune._hook.outside import Outside
from gputune._hook.patching import Function, is_compiling, replace
from gputune._hook.steps import Steps
from gputune._hook.timeline import Phases

#: Steps in which the hook searches for modules. Later calls of other modules cost nothing.
_SEARCH_STEPS = 2

#: `nn.Module` calls this attribute, if set, instead of `_call_impl` (since torch 2.2). It is neither copied nor saved.
_CALL = "_compiled_call_impl"


class Treatment:
    """A change of a trained module. Each method does nothing by default."""

    def prepare(self, module: nn.Module) -> None:
        """Called before the module's first call, and before the next call after a move to another device."""

    def call(self, module: nn.Module, call: Function) -> Function:
        """Returns the replacement of the module's call."""
        return call

    def inputs(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Changes the inputs before each call in training."""
        return args, kwargs

    def surround(self, stack: ExitStack) -> None:
        """Enters the contexts of a call in training."""

    def outputs(self, outputs: Any) -> Any:
        """Changes the outputs after each call in training."""
        return outputs


class _Adopted:
    """A trained module: its call and its device."""

    def __init__(self, module: nn.Module) -> None:
        self.call: Function = _unbound_call(module)
        self.device = torch.device("cpu")
        self._module = weakref.ref(module)
        self.look()

    def look(self) -> None:
        """Finds the parameter that shows the module's device."""
        parameter = devices.placed(self._module())  # type: ignore[arg-type]
        self._parameter = weakref.ref(parameter)
        self.device = parameter.device

    def has_moved(self) -> bool:
        parameter = self._parameter()
        return parameter is None or parameter.device != self.device


class Modules:
    """The trained modules: the outermost modules called in training mode, with gradients and trainable parameters."""

    def __init__(self, phases: Phases, steps: Steps, outside: Outside) -> None:
        self.treatments: list[Treatment] = []
        self._is_called = False
        self._phases = phases
        self._steps = steps
        self._outside = outside
        self._calls: weakref.WeakKeyDictionary[nn.Module, _Adopted] = weakref.WeakKeyDictionary()
        self._original: Optional[Function] = None

    def install(self) -> None:
        self._original = replace(nn.Module, "__call__", self._around_any_call)
        replace(nn.Module, "train", self._around_train)

    @property
    def is_inside(self) -> bool:
        """True during a call of a trained module, and in backward: checkpointing calls parts of the module again."""
        return self._is_called or self._phases.is_inside("backward")

    @property
    def found(self) -> list[nn.Module]:
        return list(self._calls)

    def end_search(self) -> None:
        """Ends the search after the first steps: from then on only the found modules are wrapped."""
        if self._original is not None and self._steps.number >= _SEARCH_STEPS:
            nn.Module.__call__ = self._original  # type: ignore[method-assign]
            self._original = None

    def _around_any_call(self, original: Function) -> Function:
        def __call__(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if self.is_inside or is_compiling():
                return original(module, *args, **kwargs)
            if module not in self._calls and _is_trained(module):
                self._adopt(module)
            if hasattr(nn.Module, _CALL) or module not in self._calls:
                return original(module, *args, **kwargs)
            return self._call(module, self._calls[module], args, kwargs)

        return __call__

    def _around_train(self, original: Function) -> Function:
        def train(module: nn.Module, mode: bool = True) -> nn.Module:
            if module in self._calls and not is_compiling() and module.training != mode:
                (self._outside.trains if mode else self._outside.evaluates)()
            return original(module, mode)

        return train

    def _adopt(self, module: nn.Module) -> None:
        for inner in module.modules():  # a script may call a module alone before it wraps it, such as in DDP
            if inner in self._calls:
                self._release(inner)
        adopted = _Adopted(module)
        self._prepare(module, adopted)
        for treatment in self.treatments:
            adopted.call = treatment.call(module, adopted.call)
        self._calls[module] = adopted
        found = weakref.ref(module)
        if hasattr(nn.Module, _CALL):

            def call_adopted(*args: Any, **kwargs: Any) -> Any:
                return self._call(found(), adopted, args, kwargs)

            module.__dict__[_CALL] = call_adopted  # `setattr` on Fabric's wrapper would change the inner module
        else:
            self._patch_class(type(module))

    def _prepare(self, module: nn.Module, adopted: _Adopted) -> None:
        for treatment in self.treatments:
            treatment.prepare(module)
        adopted.look()  # treatments may have changed the parameters

    def _release(self, module: nn.Module) -> None:
        del self._calls[module]
        if hasattr(nn.Module, _CALL):
            module.__dict__.pop(_CALL, None)

    def _patch_class(self, kind: type) -> None:
        """Wraps the call of the module's own class in older torch, so that other classes stay unchanged."""
        if "_is_gputune" in vars(kind):
            return
        kind._is_gputune = True  # type: ignore[attr-defined]
        original = nn.Module._call_impl

        def __call__(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            adopted = None if self.is_inside else self._calls.get(module)
            if adopted is None:
                return original(module, *args, **kwargs)
            return self._call(module, adopted, args, kwargs)

        kind.__call__ = __call__  # type: ignore[operator]

    def _call(self, module: Any, adopted: _Adopted, args: Any, kwargs: Any) -> Any:
        call = adopted.call
        if self.is_inside or is_compiling():
            return call(*args, **kwargs)
        if not (module.training and torch.is_grad_enabled()):
            (self._outside.passes if module.training else self._outside.evaluates)()
            return self.evaluate(module, adopted, args, kwargs)
        self._outside.trains()
        return self.train(module, adopted, args, kwargs)

    def evaluate(self, module: Any, adopted: _Adopted, args: Any, kwargs: Any) -> Any:
        """Calls a module without training it."""
        return adopted.call(*args, **kwargs)

    def train(self, module: Any, adopted: _Adopted, args: Any, kwargs: Any) -> Any:
        """Calls a module in training."""
        call = adopted.call
        if adopted.has_moved():
            self._prepare(module, adopted)
        self._phases.called_on = self._device_of(adopted, args, kwargs)
        self._is_called = True
        self._phases.enter("forward")
        try:
            self._steps.add_forward(module, args, kwargs)
            if not self.treatments:
                return call(*args, **kwargs)
            return self._treated(call, args, kwargs)
        except Exception as error:
            self._steps.note_failure(error)
            raise
        finally:
            self._phases.leave()
            self._is_called = False

    def _device_of(self, adopted: _Adopted, args: Any, kwargs: Any) -> torch.device:
        """The device on which a module computes. For a module on the CPU: the training device, or else the inputs'."""
        device, decided = adopted.device, self._phases.device
        if device.type != "cpu":
            return device
        if decided is not None:
            return device if decided.type == "cpu" else decided
        inputs = (tensor.device for tensor in tensors_in((args, kwargs)))
        return next((found for found in inputs if devices.module_of(found) is not None), device)

    def _treated(self, call: Function, args: Any, kwargs: Any) -> Any:
        for treatment in self.treatments:
            args, kwargs = treatment.inputs(args, kwargs)
        with ExitStack() as stack:
            for treatment in self.treatments:
                treatment.surround(stack)
            outputs = call(*args, **kwargs)
        for treatment in reversed(self.treatments):
            outputs = treatment.outputs(outputs)
        return outputs


def _is_trained(module: nn.Module) -> bool:
    if not (module.training and torch.is_grad_enabled()) or isinstance(module, torch.jit.ScriptModule):
        return False
    return Reporter.hooked() is not None and any(parameter.requires_grad for parameter in module.parameters())


def _unbound_call(module: nn.Module) -> Function:
    """The module's call without a strong reference to the module, so that the module can be freed."""
    own = module.__dict__.get(_CALL)
    if own is not None:
        compiled: Function = own
        return compiled
    found = weakref.ref(module)

    def call(*args: Any, **kwargs: Any) -> Any:
        alive: Any = found()
        return alive._call_impl(*args, **kwargs)

    return call
