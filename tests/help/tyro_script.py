"""Flags by tyro."""

from typing import Literal

import tyro


def main(data: str, batch_size: int = 32, precision: Literal["fp32", "bf16"] = "fp32", compile: bool = False) -> None:
    """Trains.

    Args:
        data: The folder.
        batch_size: Samples of a step.
    """


tyro.cli(main)
