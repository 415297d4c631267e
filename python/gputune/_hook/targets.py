"""What `apply` can set through the hook: one row for each target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable

from gputune._hook.optimizers import FUSED

if TYPE_CHECKING:
    from gputune._hook.install import Hook


@dataclass(frozen=True)
class Target:
    """A target, how it is put in place, and what the user reads when it found nothing to act on."""

    name: str
    install: Callable[[Hook], None]
    nothing: str


def _by_itself(hook: Hook) -> None:
    """Parts that are there in any case read this setting themselves."""


_NO_LOADER = (
    "no torch.utils.data.DataLoader yielded a batch before the first optimizer step; pass the setting to the script "
    'instead (apply = "arg", or gputune.config())'
)

TARGETS = (
    *(
        Target(f"dataloader.{name}", _by_itself, _NO_LOADER)
        for name in ("batch_size", "num_workers", "pin_memory", "prefetch_factor", "persistent_workers")
    ),
    Target(
        FUSED,
        _by_itself,
        "no optimizer of torch.optim that has a fused form was made (Adam, AdamW, SGD, Adagrad have one)",
    ),
)
