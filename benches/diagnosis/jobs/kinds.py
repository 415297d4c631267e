"""Every kind of job: what is wrong, how much of it, what cures it, and which half it belongs to.

A new kind is a function that writes it and a row here. `held_out` kinds are for judging: whoever works on rules neither runs nor
reads them (`--half seen`). `SECOND` are those of them that were added after rules had been judged with the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

import data
import loop
import models
import others
import outside
import second
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

FIRST_KINDS = (
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
    Kind("collate_waits", HELD_OUT, data.collate_waits, DATA, "waiting", (3.0, 6.0), "keep the features in the dataset", 2.0, ONE,
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

FIRST_MIXTURES = (
    Mixture("storage_and_python", SEEN, "slow_storage", "python_in_loop", (6.0, 1.0)),
    Mixture("evaluation_and_collate", SEEN, "evaluation_often", "collate_computes", (3.0, 2.0)),
    Mixture("python_and_evaluation", SEEN, "python_in_loop", "evaluation_often", (3.0, 1.2)),
    Mixture("transform_and_metrics", HELD_OUT, "transform_computes", "metrics_in_loop", (4.5, 0.9)),
    Mixture("evaluation_and_lock", HELD_OUT, "evaluation_epoch", "file_lock", (3.0, 2.2)),
    Mixture("metrics_and_checkpoint", HELD_OUT, "metrics_in_loop", "checkpoint_often", (3.0, 1.2)),
)

SECOND_KINDS = (
    # Loaders.
    Kind("packed_records", HELD_OUT, second.packed_records, DATA, "computing", (3.0, 5.0), "unpack once, before training", 1.5, ONE,
         scaling=CORES, setting=("workers", 2)),
    Kind("whole_column", HELD_OUT, second.whole_column, DATA, "no_workers", (1.5, 3.0), "take the column once, before training", 1.5,
         scaling=CORES, setting=("workers", 1), also=("computing",)),
    Kind("choosing_batches", HELD_OUT, second.choosing_batches, DATA, "computing", (1.5, 4.0), "sort by length and cut once", 1.6, ONE,
         scaling=SHARED, also=("python",), also_branches=(LOOP,)),
    Kind("small_reads", HELD_OUT, second.small_reads, DATA, "storage", (3.0, 6.0), "a copy in memory", 2.0, ONE,
         scaling=BEYOND, setting=("workers", 4), also=("waiting",)),
    Kind("nested_lists", HELD_OUT, second.nested_lists, DATA, "handing_over", (2.0, 3.0), "hand over tensors, not lists", 1.5, TWO,
         scaling=SHARED),
    # The loop's own code.
    Kind("limited_service", HELD_OUT, second.limited_service, LOOP, "waiting", (2.0, 4.0), "ask once, before training", 1.6, (0, 1),
         also=("python",)),
    Kind("activation_hooks", HELD_OUT, second.activation_hooks, LOOP, "python", (1.5, 4.0), "running averages, by torch", 1.6, (0, 1)),
    Kind("frees_memory", HELD_OUT, second.frees_memory, LOOP, "python", (4.0, 6.0), "collect every 500 steps", 1.6, (0, 1),
         models.LARGEST),
    # Outside of steps.
    Kind("scores_by_callback", HELD_OUT, second.scores_by_callback, OUTSIDE, "evaluation", (2.0, 4.0), "check every 5000 steps", 1.5,
         (0, 1)),
    Kind("pictures_of_weights", HELD_OUT, second.pictures_of_weights, OUTSIDE, "logging", (1.5, 3.0), "draw every 5000 steps", 1.5,
         (0, 1), also=("python",), also_branches=(LOOP,)),
    Kind("corpus_each_epoch", HELD_OUT, second.corpus_each_epoch, OUTSIDE, "epoch_edge", (1.0, 2.5), "draw at random, without hashes",
         1.5, also=("python",), also_branches=(LOOP,)),
    # Healthy.
    Kind("healthy_accumulation", HELD_OUT, second.healthy_accumulation, HEALTHY, HEALTHY, models=models.LARGE),
    Kind("healthy_waiting_worker", HELD_OUT, second.healthy_waiting_worker, HEALTHY, HEALTHY, (0.1, 0.2), models=models.LARGEST,
         workers=ONE),
)

SECOND_MIXTURES = (
    Mixture("packed_and_hooks", HELD_OUT, "packed_records", "activation_hooks", (4.5, 0.9)),
    Mixture("callback_and_batches", HELD_OUT, "scores_by_callback", "choosing_batches", (4.0, 0.9)),
)

KINDS, MIXTURES = FIRST_KINDS + SECOND_KINDS, FIRST_MIXTURES + SECOND_MIXTURES
SECOND = SECOND_KINDS + SECOND_MIXTURES
BY_NAME = {kind.name: kind for kind in KINDS}
