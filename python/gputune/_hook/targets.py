"""The targets that `apply` can set through the hook."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

from gputune._hook.accumulation import Accumulation
from gputune._hook.backends import CHANNELS_LAST, CUDNN_BENCHMARK, SDPA, Attention, ChannelsLast, CudnnBenchmark
from gputune._hook.checkpointing import CHECKPOINT, Checkpointing
from gputune._hook.compiling import COMPILE, Compiling
from gputune._hook.data_parallel import BUCKET, COMPRESSION, STATIC, VIEW
from gputune._hook.dynamic_shapes import DYNAMIC, DynamicShapes
from gputune._hook.loader_settings import ACCUMULATION
from gputune._hook.optimizers import FUSED
from gputune._hook.own_gradients import OwnAccumulation
from gputune._hook.parts import Hook
from gputune._hook.precision import PRECISION, Precision
from gputune._hook.sharding import PREFETCH, RESHARD, STRATEGY


@dataclass(frozen=True)
class Target:
    """A target, the function that installs it, and the message if it found nothing to act on."""

    name: str
    install: Callable[[Hook], None]
    nothing: str


def _by_itself(hook: Hook) -> None:
    """Installs nothing: a part of the hook that is always installed reads this setting itself."""


def _compile(hook: Hook) -> None:
    Compiling(hook).install(hook)
    if hook.session.value(ACCUMULATION) in (None, 1):
        OwnAccumulation(hook).install()


_NO_LOADER = (
    "no torch.utils.data.DataLoader yielded a batch before the first optimizer step; a script that makes its batches "
    "itself can be given their size only where it takes one: put that option into `command`, or take the parameter out"
)

_NO_MODULE = (
    "no module with parameters to train was called, in training mode and with gradients, before the first optimizer "
    "step; torch.jit modules and functions without a torch.nn.Module cannot be changed from outside"
)

_NO_DDP = (
    "no torch.nn.parallel.DistributedDataParallel trained in the first step: the script shards its weights, has one "
    "rank, or exchanges gradients in a way of its own"
)

_NO_FULLY_SHARD = (
    "no module that torch.distributed.fsdp.fully_shard has sharded trained in the first step; the older "
    "FullyShardedDataParallel has fsdp.sharding_strategy"
)

TARGETS = (
    *(
        Target(f"dataloader.{name}", _by_itself, _NO_LOADER)
        for name in (
            "batch_size",
            "num_workers",
            "pin_memory",
            "prefetch_factor",
            "persistent_workers",
            "in_order",
            "multiprocessing_context",
        )
    ),
    Target(PRECISION, lambda hook: Precision(hook).install(), _NO_MODULE),
    # This target comes before the target `torch.compile`, which calls the function that this target wraps.
    Target(
        DYNAMIC,
        lambda hook: DynamicShapes(hook).install(),
        "torch.compile was not called before the end of the first step; the target torch.compile compiles the model",
    ),
    Target(COMPILE, _compile, _NO_MODULE),
    Target(
        CHANNELS_LAST,
        lambda hook: ChannelsLast(hook).install(hook),
        "no trained module has four-dimensional parameters (two-dimensional convolutions)",
    ),
    Target(
        CUDNN_BENCHMARK,
        lambda hook: CudnnBenchmark(hook).install(hook),
        "no trained module is on a CUDA device with cuDNN",
    ),
    Target(
        FUSED,
        _by_itself,
        "no optimizer of torch.optim that has a fused form was made (Adam, AdamW, SGD and Adagrad have one)",
    ),
    Target(
        SDPA,
        lambda hook: Attention(hook).install(hook),
        "torch.nn.functional.scaled_dot_product_attention was not called in the first step; models of transformers "
        'call it with attn_implementation="sdpa"',
    ),
    Target(ACCUMULATION, lambda hook: Accumulation(hook).install(), _NO_LOADER),
    Target(
        CHECKPOINT,
        lambda hook: Checkpointing(hook).install(hook),
        "the trained modules have no gradient_checkpointing_enable() and no repeated blocks (several children of one "
        "class in a ModuleList or Sequential, with layers inside and without batch normalisation)",
    ),
    *(Target(name, _by_itself, _NO_DDP) for name in (BUCKET, VIEW, STATIC, COMPRESSION)),
    *(Target(name, _by_itself, _NO_FULLY_SHARD) for name in (RESHARD, PREFETCH)),
    Target(
        STRATEGY,
        _by_itself,
        "no torch.distributed.fsdp.FullyShardedDataParallel trained in the first step; what fully_shard has sharded has "
        "fsdp.reshard_after_forward",
    ),
)
