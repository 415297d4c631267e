"""The experiment `no_communication`: the ranks train independently, and exchange neither gradients nor weights.

The trained model is useless, as the probe measures only the time. The script's own collectives still run.
"""

from __future__ import annotations

from typing import Any

from torch import distributed, nn

from gputune._hook.parts import Hook
from gputune._hook.patching import Function, replace
from gputune._hook.sharding import sharded_in


class NoCommunication:
    """Makes DistributedDataParallel keep its gradients, and weights sharded by `fully_shard` stay gathered."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._gradients: dict[int, Any] = {}  # gradients of sharded weights in the first step, by the parameter's id
        self.is_silent = False
        """True if a module was found that would communicate."""

    def install(self) -> None:
        if not distributed.is_available():
            return
        kind = nn.parallel.DistributedDataParallel
        register = kind.register_comm_hook
        for name in ("register_comm_hook", "_register_builtin_comm_hook"):
            if hasattr(kind, name):
                replace(kind, name, _ignored)
        replace(kind, "__init__", lambda original: self._around_init(original, register))
        self._hook.steps.checks.append(self._silence_sharded)
        self._hook.optimizers.before_step.append(self._restore_gradients)

    def _around_init(self, original: Function, register: Function) -> Function:
        def __init__(parallel: Any, *args: Any, **kwargs: Any) -> None:
            original(parallel, *args, **kwargs)
            from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook

            parallel.broadcast_buffers = False  # else DDP sends the buffers of batch normalisation before each pass
            register(parallel, None, noop_hook)
            self.is_silent = True

        return __init__

    def _silence_sharded(self) -> None:
        """Silences sharded modules after the first step, which has gathered the weights and made gradients."""
        sharded: list[Any] = sharded_in(self._hook.modules.found)
        for module in sharded:
            self.is_silent = True
            module.set_requires_gradient_sync(False, recurse=False)
            module.set_reshard_after_forward(False, recurse=False)
            module.set_reshard_after_backward(False, recurse=False)
        parameters = (parameter for module in sharded for parameter in module.parameters())
        self._gradients = {id(parameter): parameter.grad for parameter in parameters if parameter.grad is not None}

    def _restore_gradients(self, optimizer: Any) -> None:
        """Gives the optimizer the first step's gradients, so that it does its usual work without an exchange."""
        if not self._gradients:
            return
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    parameter.grad = self._gradients.get(id(parameter))


def _ignored(original: Function) -> Function:
    def register(*args: Any, **kwargs: Any) -> None:
        """Ignores the script's own communication hook, as nothing is exchanged."""

    return register
