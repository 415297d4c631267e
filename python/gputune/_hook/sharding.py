"""Sharded weights: the targets `fsdp.*`, by torch's `fully_shard` (FSDP2) and `FullyShardedDataParallel` (FSDP1)."""

from __future__ import annotations

import inspect
import sys
from typing import Any, Iterable, Optional

from torch import distributed, nn

from gputune._client import rank_and_ranks
from gputune._hook import importing
from gputune._hook.data_parallel import say_backend
from gputune._hook.modules import Treatment
from gputune._hook.parts import Hook
from gputune._hook.patching import Function, replace
from gputune._hook.session import CannotChange

PREFIX = "fsdp."
RESHARD = PREFIX + "reshard_after_forward"
PREFETCH = PREFIX + "prefetch_depth"
STRATEGY = PREFIX + "sharding_strategy"

#: Modules that contain `fully_shard`, the newest first.
_FSDP = "torch.distributed.fsdp"
_PLACES = (_FSDP, "torch.distributed._composable.fsdp")


class Sharding(Treatment):
    """Sets and reports the sharding of weights. Without `fsdp.*` settings it only reports, at the first step."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._session = hook.session
        self._facts = hook.facts
        self._order: list[nn.Module] = []  # sharded modules in the order of their first calls
        self._watched: list[Any] = []

    def install(self) -> None:
        if not distributed.is_available():
            return
        settings = self._session.settings
        if RESHARD in settings or PREFETCH in settings:
            self._hook.modules.treatments.append(self)
            self._hook.changes[RESHARD] = self._change_reshard
            self._hook.changes[PREFETCH] = self._change_prefetch
        if STRATEGY in settings:
            importing.after(_FSDP, self._patch_fsdp1)
        self._hook.steps.checks.append(self._look)

    def prepare(self, module: nn.Module) -> None:
        sharded = sharded_in([module])
        if sharded:
            self._watch(sharded)
            self._reshard(sharded)

    def outputs(self, outputs: Any) -> Any:
        """Sets prefetching after the first pass, which shows the order of the modules."""
        if self._watched and self._order:
            self._unwatch()
            self._prefetch()
        return outputs

    def _watch(self, sharded: list[nn.Module]) -> None:
        self._unwatch()
        self._order = []

        def note(module: nn.Module, *args: Any) -> None:
            if all(known is not module for known in self._order):
                self._order.append(module)

        self._watched = [module.register_forward_pre_hook(note) for module in sharded]

    def _unwatch(self) -> None:
        for handle in self._watched:
            handle.remove()
        self._watched = []

    def _change_reshard(self, value: Any) -> None:
        self._reshard(_known(value, self._order))

    def _change_prefetch(self, value: Any) -> None:
        _known(value, self._order)
        self._prefetch()

    def _reshard(self, sharded: list[nn.Module]) -> None:
        """Sets resharding for all modules except the outermost, as torch does: backward starts with its weights."""
        value = self._session.value(RESHARD)
        if value is None:
            return
        for module in inner_of(sharded) or sharded:
            module.set_reshard_after_forward(bool(value), recurse=False)  # type: ignore[operator]
        if resharding(sharded) == bool(value):
            self._session.apply(RESHARD)

    def _prefetch(self) -> None:
        """Makes each module prefetch the weights of the next modules, in first-pass order; 0 leaves this to torch."""
        depth = self._session.value(PREFETCH)
        if depth is None:
            return
        order = inner_of(self._order)
        if len(order) < 2:
            reason = "fewer than two modules are sharded by themselves: nothing comes after another"
            self._session.explain(PREFETCH, reason)
            return
        for at, module in enumerate(order):
            ahead, behind = order[at + 1 : at + 1 + depth], order[max(at - depth, 0) : at]
            module.set_modules_to_forward_prefetch(ahead)  # type: ignore[operator]
            module.set_modules_to_backward_prefetch(behind[::-1])  # type: ignore[operator]
        self._session.apply(PREFETCH)

    def _patch_fsdp1(self, module: Any) -> None:
        kind = getattr(module, "FullyShardedDataParallel", None)
        if kind is not None:
            strategy = module.ShardingStrategy[self._session.value(STRATEGY)]
            replace(kind, "__init__", lambda original: _with_strategy(original, strategy))

    def _look(self) -> None:
        """Reports the sharding of the trained modules at the first step."""
        modules = self._hook.modules.found
        sharded = sharded_in(modules)
        wrapped = _wrapped_in(modules)
        if not (sharded or wrapped):
            return
        strategies = {module.sharding_strategy.name for module in wrapped}
        if len(strategies) == 1 and self._session.value(STRATEGY) in strategies:
            self._session.apply(STRATEGY)
        if rank_and_ranks()[0] == 0:
            say_backend(self._facts)
            say = self._facts.say
            say("distributed.wrapper", "fully_shard" if sharded else "FullyShardedDataParallel")
            say("fsdp.reshard_after_forward", resharding(sharded) if sharded else None)
            say("fsdp.prefetch_depth", _depth(sharded) if sharded else None)
            say("fsdp.sharding_strategy", ", ".join(sorted(strategies)) or None)


def _known(value: Any, order: list[nn.Module]) -> list[nn.Module]:
    """Returns `order`. Raises `CannotChange` if `order` is empty, or if `value` is `None`.

    `None` means the script's own behaviour, which only a new process has.
    """
    if value is None or not order:
        raise CannotChange("what the script has by itself comes back in a new process only")
    return order


def sharded_in(modules: Iterable[nn.Module]) -> list[nn.Module]:
    """The modules sharded by `fully_shard`, the outermost first; empty if it was never imported."""
    kinds = tuple(filter(None, (getattr(sys.modules.get(place), "FSDPModule", None) for place in _PLACES)))
    return [inner for module in modules for inner in module.modules() if kinds and isinstance(inner, kinds)]


def inner_of(sharded: list[nn.Module]) -> list[nn.Module]:
    """The sharded modules that are inside another sharded module."""
    inside = {id(inner) for module in sharded for inner in module.modules() if inner is not module}
    return [module for module in sharded if id(module) in inside]


def resharding(sharded: list[nn.Module]) -> Optional[bool]:
    """True if weights are freed after the forward pass; `None` if modules differ, or if torch does not show it."""
    try:
        found = {
            group.post_forward_mesh_info is not None
            for module in inner_of(sharded) or sharded
            for group in _groups(module)
        }
    except AttributeError:  # this version of torch has other attributes
        return None
    return found.pop() if len(found) == 1 else None


def _groups(module: Any) -> list[Any]:
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:  # torch before 2.12 has one group
        groups = [state._fsdp_param_group]
    return [group for group in groups if group is not None]


def _depth(sharded: list[nn.Module]) -> Optional[int]:
    """The number of modules whose weights the script prefetches; 0 if it leaves prefetching to torch."""
    try:
        states = [module._get_fsdp_state() for module in sharded]  # type: ignore[operator]
        return max(len(state._states_to_forward_prefetch) for state in states)
    except AttributeError:
        return None


def _wrapped_in(modules: Iterable[nn.Module]) -> list[Any]:
    kind = getattr(sys.modules.get(_FSDP), "FullyShardedDataParallel", None)
    return [inner for module in modules for inner in module.modules() if kind is not None and isinstance(inner, kind)]


def _with_strategy(original: Function, strategy: Any) -> Function:
    """Replaces the strategy in the constructor, which FSDP1 also uses for inner modules."""
    signature = inspect.signature(original)

    def __init__(module: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(module, *args, **kwargs)
        bound.arguments["sharding_strategy"] = strategy
        original(*bound.args, **bound.kwargs)

    return __init__
