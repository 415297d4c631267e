"""Runs the hook after `import torch` where torch does not do so itself (before 2.5, or with the entry points off)."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Optional

from gputune._client import Reporter


def await_torch() -> None:
    """Installs the finder; does nothing outside a probe."""
    if Reporter.current() is not None and "torch" not in sys.modules:
        sys.meta_path.insert(0, _TorchFinder())  # type: ignore[arg-type]


class _TorchFinder:
    """Finds torch as the other finders do, and has its loader call the hook at the end.

    It changes the loader of one spec only: `importlib.util.find_spec("torch")` gives the class that it gave before.
    """

    def find_spec(self, name: str, path: Any = None, target: Optional[ModuleType] = None) -> Optional[ModuleSpec]:
        if name != "torch":
            return None
        for finder in sys.meta_path:
            find_spec = None if finder is self else getattr(finder, "find_spec", None)
            spec = find_spec(name, path, target) if find_spec is not None else None
            if spec is not None:
                self._extend(spec)
                return spec
        return None

    def _extend(self, spec: ModuleSpec) -> None:
        loader = spec.loader
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # type: ignore[union-attr]
            if self in sys.meta_path:
                sys.meta_path.remove(self)  # type: ignore[arg-type]
            execute(module)
            from gputune._hook import entry

            entry.torch_backend()

        try:
            loader.exec_module = exec_module  # type: ignore[union-attr,method-assign]
        except AttributeError:  # a loader without attributes of its own
            pass
