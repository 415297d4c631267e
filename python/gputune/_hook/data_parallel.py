"""DistributedDataParallel: reports its arguments, and sets the targets `ddp.*` when it is made."""

from __future__ import annotations

import inspect
import weakref
from typing import Any, Optional

from torch import distributed, nn

from gputune._client import rank_and_ranks
from gputune._hook import experiment
from gputune._hook.parts import Hook
from gputune._hook.patching import Function, replace

PREFIX = "ddp."
BUCKET = PREFIX + "bucket_cap_mb"
VIEW = PREFIX + "gradient_as_bucket_view"
STATIC = PREFIX + "static_graph"
COMPRESSION = PREFIX + "compression"

_MIB = 1024 * 1024
#: Constructor arguments; each is the last word of a target.
_ARGUMENTS = ("bucket_cap_mb", "gradient_as_bucket_view", "static_graph")
#: The value of `ddp.compression` for each of torch's own communication hooks. DDP's logging data has the same names
#: (torch.distributed.algorithms.ddp_comm_hooks.default_hooks; torch.distributed.BuiltinCommHookType).
_COMPRESSION_OF = {
    "": "none",
    "allreduce_hook": "none",
    "BuiltinCommHookType.ALLREDUCE": "none",
    "fp16_compress_hook": "fp16",
    "BuiltinCommHookType.FP16_COMPRESS": "fp16",
    "bf16_compress_hook": "bf16",
}


class DataParallel:
    """Tracks each DistributedDataParallel. Does nothing without `torch.distributed`."""

    def __init__(self, hook: Hook) -> None:
        asked = hook.session.experiment
        self._is_silent = asked is not None and asked.mode == experiment.NO_COMMUNICATION
        self._session = hook.session
        self._facts = hook.facts
        self._hook = hook
        self._made: weakref.WeakSet[Any] = weakref.WeakSet()

    def install(self) -> None:
        if not distributed.is_available():
            return
        kind = nn.parallel.DistributedDataParallel
        replace(kind, "__init__", self._around_init)
        if COMPRESSION in self._session.settings and not self._is_silent:
            self._register = kind.register_comm_hook
            replace(kind, "register_comm_hook", self._around_register)
            if hasattr(kind, "_register_builtin_comm_hook"):
                replace(kind, "_register_builtin_comm_hook", self._around_builtin)
        self._hook.steps.checks.append(self._look)

    def _around_init(self, original: Function) -> Function:
        signature = inspect.signature(original)

        def __init__(parallel: Any, *args: Any, **kwargs: Any) -> None:
            wanted = {name: self._session.value(PREFIX + name) for name in _ARGUMENTS}
            wanted = {name: value for name, value in wanted.items() if value is not None}
            if wanted:
                bound = signature.bind(parallel, *args, **kwargs)
                bound.arguments.update(wanted)
                if "bucket_cap_mb" in wanted:
                    bound.arguments.pop("bucket_cap_mb_list", None)
                original(*bound.args, **bound.kwargs)
            else:
                original(parallel, *args, **kwargs)
            self._made.add(parallel)
            self._compress(parallel)

        return __init__

    def _compress(self, parallel: Any) -> None:
        value = self._session.value(COMPRESSION, "none")
        if self._is_silent:  # ranks exchange nothing, so there is nothing to compress
            self._session.apply(COMPRESSION)
        if value == "none" or self._is_silent:
            return
        try:
            from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

            self._register(parallel, None, getattr(default_hooks, f"{value}_compress_hook"))
        except Exception as error:  # such as bfloat16 with an NCCL before 2.10
            self._session.reject(COMPRESSION, str(error))

    def _around_register(self, original: Function) -> Function:
        def register_comm_hook(parallel: Any, state: Any, hook: Any) -> None:
            self._drop_hook(getattr(hook, "__qualname__", type(hook).__name__))

        return register_comm_hook

    def _around_builtin(self, original: Function) -> Function:
        def register_builtin(parallel: Any, kind: Any) -> None:
            self._drop_hook(str(kind))

        return register_builtin

    def _drop_hook(self, name: str) -> None:
        """Drops a hook that the script registers. Rejects the setting if the hook is not torch's own."""
        if name not in _COMPRESSION_OF:
            reason = f"the script registers a communication hook of its own ({name}), which would be lost"
            self._session.reject(COMPRESSION, reason)

    def _look(self) -> None:
        """At the first step: reports the modules that train, and the settings that took effect."""
        if self._made and distributed.is_initialized():
            say_backend(self._facts)
        modules = [inner for module in self._hook.modules.found for inner in module.modules()]
        for parallel in self._made:
            if any(inner is parallel for inner in modules):
                self._look_at(_logging_data(parallel), parallel)

    def _look_at(self, logged: dict[str, Any], parallel: Any) -> None:
        found = {
            BUCKET: _mib(logged.get("bucket_cap_bytes", getattr(parallel, "bucket_bytes_cap", None))),
            VIEW: bool(logged.get("gradient_as_bucket_view", getattr(parallel, "gradient_as_bucket_view", False))),
            STATIC: bool(getattr(parallel, "static_graph", False)),
            COMPRESSION: _compression(logged.get("comm_hook", "")),
        }
        if rank_and_ranks()[0] == 0:
            say = self._facts.say
            say("distributed.wrapper", "DistributedDataParallel")
            say("ddp.bucket_cap_mb", found[BUCKET])
            say("ddp.gradient_as_bucket_view", found[VIEW])
            say("ddp.static_graph", found[STATIC])
            say("ddp.compression", None if self._is_silent else found[COMPRESSION])
        for target, value in found.items():
            if self._session.value(target) == value:
                self._session.apply(target)


def say_backend(facts: Any) -> None:
    """Reports the communication backend of the ranks."""
    if rank_and_ranks()[0] == 0:
        facts.say("distributed.backend", str(distributed.get_backend()))


def _logging_data(parallel: Any) -> dict[str, Any]:
    try:
        return dict(parallel._get_ddp_logging_data())
    except Exception:  # an older torch
        return {}


def _mib(size: Optional[float]) -> Optional[float]:
    if size is None:
        return None
    return size // _MIB if size % _MIB == 0 else size / _MIB


def _compression(hook: str) -> str:
    return _COMPRESSION_OF.get(hook, hook)
