"""Options by typer, whose help stands in boxes."""

from enum import Enum

import typer


class Precision(str, Enum):
    fp32 = "fp32"
    bf16 = "bf16"


def main(
    data: str,
    batch_size: int = typer.Option(32, "--batch-size", "-b", help="Samples of a step."),
    num_workers: int = 2,
    precision: Precision = Precision.fp32,
    amp: bool = typer.Option(False, help="Mixed precision, which is a text that is so long that typer has to break it."),
    prefetch_factor: int = typer.Option(2, min=1, help="Batches ahead."),
):
    """Trains on DATA."""


typer.run(main)
