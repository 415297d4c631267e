"""Every kind of job: what is wrong, how much of it, what cures it, and which half it belongs to.

A new kind is a function that writes it and a row here. `held_out` kinds are for judging: whoever works on rules neither runs nor
reads them (`--half seen`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

import data
import loop
import models
import others
import outside
from models import Model
from place import Write
from truth import BEYOND, COMMUNICATION, COMPUTE, CORES, DATA, HEALTHY, HELD_OUT, LOOP, OUTSIDE, SEEN, SHARED


@dataclass(frozen=True)
class Kind:
    """A disease as it is made. `factor` is its cost in steps of the healthy script, from and to."""

    name: str
    half: str
    write: Write
    branch: str
    cause: str
    factor: tuple[float, float] = (0.0, 0.0)
    remedy: str = ""
    least: float = 1.0
    workers: tuple[int, ...] = (0,)
    models: tuple[Model, ...] = models.SMALL
    ranks: int = 1
    scaling: Optional[str] = None
    setting: Optional[tuple[str, int]] = None
    also: tuple[str, ...] = ()  # other words for the cause that are not wrong
    also_branches: tuple[str, ...] = ()


@dataclass(frozen=True)
class Mixture:
    """Two diseases, the first of which costs more. `factors` are theirs."""

    name: str
    half: str
    first: str
    second: str
    factors: tuple[float, float]


ONE, TWO = (1,), (2,)

KINDS = (
    # Loaders.
    Kind("collate_computes", SEEN, data.collate_computes, DATA, "computing", (3.0, 5.0), "standardise once, before training", 1.5, ONE,
         scaling=CORES, setting=("workers", 2)),
    Kind("shared_lock", SEEN, data.shared_lock, DATA, "lock", (3.0, 6.0), "each worker has its own copy of the index", 2.0, TWO,
         scaling=SHARED),
    Kind("slow_storage", SEEN, data.slow_storage, DATA, "storage", (3.0, 6.0), "a copy in memory", 2.0, ONE,
         scaling=BEYOND, setting=("workers", 4)),
    Kind("no_workers", SEEN, data.no_workers, DATA, "no_workers", (1.5, 3.0), "tokenise once, before training", 1.5,
         scaling=CORES, setting=("workers", 1), also=("computing",)),
    Kind("handing_over", SEEN, data.handing_over, DATA, "handing_over", (2.0, 2.0), "cut in the worker, not in the loop", 1.3, TWO,
         models.PICTURES, scaling=SHARED),
    Kind("transform_computes", HELD_OUT, data.transform_computes, DATA, "computing", (3.0, 5.0), "transform once, before training", 1.5,
         ONE, scaling=CORES, setting=("workers", 2)),
    Kind("file_lock", HELD_OUT, data.file_lock, DATA, "lock", (3.0, 5.0), "parse once, before training", 1.5, TWO, scaling=SHARED),
    Kind("bursty_storage", HELD_OUT, data.bursty_storage, DATA, "storage", (3.0, 6.0), "a copy in memory", 1.8, ONE,
         scaling=BEYOND, setting=("workers", 4), also=("prefetch",)),
    Kind("threads_in_worker", HELD_OUT, data.threads_in_worker, DATA, "interpreter", (3.0, 5.0), "tokenise once, before training", 1.5,
         ONE, scaling=CORES, setting=("workers", 2), also=("computing",)),
    Kind("collate_waits", HELD_OUT, data.collate_waits, DATA, "waiting", (3.0, 6.0), "keep the features in the data set", 2.0, ONE,
         scaling=BEYOND, setting=("workers", 4), also=("storage",)),
    # The loop's own code.
    Kind("python_in_loop", SEEN, loop.python_in_loop, LOOP, "python", (1.5, 4.0), "tokenise once, before training", 1.6, (0, 1)),
    Kind("logging_each_step", SEEN, loop.logging_each_step, OUTSIDE, "logging", (1.5, 3.0), "write every 500 steps", 1.4, (0, 1),
         also_branches=(LOOP,), also=("python",)),
    Kind("metrics_in_loop", HELD_OUT, loop.metrics_in_loop, LOOP, "python", (1.5, 4.0), "measure every 500 steps", 1.6, (0, 1)),
    Kind("monitor_in_loop", HELD_OUT, loop.monitor_in_loop, LOOP, "python", (1.5, 1.5), "look every 500 steps", 1.4, (0, 1)),
    Kind("tracker_waits", HELD_OUT, loop.tracker_waits, LOOP, "waiting", (1.5, 4.0), "tell the server every 500 steps", 1.6, (0, 1),
         also=("logging", "python"), also_branches=(OUTSIDE,)),
    # Outside of steps.
    Kind("evaluation_often", SEEN, outside.evaluation_often, OUTSIDE, "evaluation", (1.0, 3.0), "evaluate every 5000 steps", 1.5, (0, 1)),
    Kind("short_epochs", SEEN, outside.short_epochs, OUTSIDE, "epoch_edge", (1.5, 3.0), "workers that stay", 1.3, TWO,
         setting=("persistent", 1)),
    Kind("evaluation_epoch", HELD_OUT, outside.evaluation_epoch, OUTSIDE, "evaluation", (1.0, 3.0), "evaluate every 200 epochs", 1.5,
         (0, 1)),
    Kind("checkpoint_often", HELD_OUT, outside.checkpoint_often, OUTSIDE, "checkpoint", (2.0, 4.0), "save every 5000 steps", 1.4, (0, 1)),
    # Ranks.
    Kind("big_gradients", SEEN, others.big_gradients, COMMUNICATION, "gradients", (1.0, 1.0), "exchange every eighth step", 1.3,
         models=models.WEIGHTS, ranks=2),
    Kind("slow_rank", HELD_OUT, others.slow_rank, COMMUNICATION, "straggler", (2.0, 3.0), "texts of like length for all ranks", 1.4,
         ranks=2, also=("python",), also_branches=(LOOP,)),
    # The device's own work.
    Kind("tiny_batch", SEEN, others.tiny_batch, COMPUTE, "small_batch", (0.0, 0.0), "batches of 32", 1.8, models=models.LAYERS,
         setting=("batch", 32)),
    Kind("healthy_clipping", SEEN, others.healthy_clipping, HEALTHY, HEALTHY, models=models.LARGE),
    Kind("healthy_evaluation", HELD_OUT, others.healthy_evaluation, HEALTHY, HEALTHY, models=models.LARGE),
    Kind("healthy_busy_worker", HELD_OUT, others.healthy_busy_worker, HEALTHY, HEALTHY, (0.2, 0.35), models=models.LARGEST, workers=ONE),
)

MIXTURES = (
    Mixture("storage_and_python", SEEN, "slow_storage", "python_in_loop", (6.0, 1.0)),
    Mixture("evaluation_and_collate", SEEN, "evaluation_often", "collate_computes", (3.0, 2.0)),
    Mixture("python_and_evaluation", SEEN, "python_in_loop", "evaluation_often", (3.0, 1.2)),
    Mixture("transform_and_metrics", HELD_OUT, "transform_computes", "metrics_in_loop", (4.5, 0.9)),
    Mixture("evaluation_and_lock", HELD_OUT, "evaluation_epoch", "file_lock", (3.0, 2.2)),
    Mixture("metrics_and_checkpoint", HELD_OUT, "metrics_in_loop", "checkpoint_often", (3.0, 1.2)),
)

BY_NAME = {kind.name: kind for kind in KINDS}
