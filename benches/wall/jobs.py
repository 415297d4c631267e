"""The scripts that are tuned, the space, and how a config gets into a script."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field
from typing import NamedTuple

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = os.path.join(HERE, "scripts")
EXAMPLES = os.path.join(HERE, "..", "..", "examples")

#: What all scripts get, whoever starts them.
VARIABLES = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}

_OPTIONS = ["--batch-size", "{batch_size}", "--workers", "{workers}", "--precision", "{precision}"]


class Config(NamedTuple):
    """One point of the space."""

    batch_size: int
    workers: int
    precision: str


BASELINE = Config(8, 0, "fp32")


class Space(NamedTuple):
    """What may be tried."""

    batch_sizes: list[int]  # powers of two, without a gap
    workers: list[int]  # without a gap
    precisions: list[str]

    def configs(self) -> list[Config]:
        """All of them, in the order of nested loops."""
        return [Config(*values) for values in itertools.product(*self)]


SPACE = Space([4, 8, 16, 32, 64], [0, 1, 2], ["fp32", "bf16"])
SMALL = Space([8, 16], [0, 1, 2], ["fp32"])


@dataclass(frozen=True)
class Job:
    """A script, and how it takes its settings.

    Where it has no options for them, gputune's hook sets them, and for the others the script is edited as its user
    would: `edits` are texts in it and what stands in their place.
    """

    folder: str
    script: str
    workload: str  # the rewritten script for loadtune, in workloads/
    options: list[str] = field(default_factory=list)
    edits: dict[str, str] = field(default_factory=dict)
    once: list[str] = field(default_factory=list)  # options of a run that makes the data; none: it needs none
    is_fast: bool = False  # whether loadtune is to try in its own process, as its README advises for frameworks

    @property
    def is_hooked(self) -> bool:
        """Whether gputune's hook sets what is searched."""
        return not self.options

    def arguments(self, config: Config) -> list[str]:
        """The options that carry a config."""
        return [option.format(**config._asdict()) for option in self.options]

    def edited(self, text: str, config: Config) -> str:
        """The script with a config written into it."""
        for before, after in self.edits.items():
            if text.count(before) != 1:
                raise ValueError(f"{self.script} has {before!r} {text.count(before)} times")
            is_bf16 = config.precision == "bf16"
            text = text.replace(before, after.format(**config._asdict(), is_bf16=is_bf16))
        return text


JOBS = {
    "plain PyTorch, slow loader": Job(SCRIPTS, "plain.py", "plain.py", options=_OPTIONS),
    "plain PyTorch, JPEG files": Job(
        SCRIPTS,
        "images.py",
        "images.py",
        options=[*_OPTIONS, "--folder", "pictures"],
        once=["--folder", "pictures", "--epochs", "0"],
    ),
    "Hugging Face Trainer": Job(
        os.path.join(EXAMPLES, "huggingface"),
        "train.py",
        "huggingface.py",
        edits={
            "per_device_train_batch_size=8,": "per_device_train_batch_size={batch_size}, "
            "dataloader_num_workers={workers}, bf16={is_bf16}, use_cpu=not torch.cuda.is_available(),"
        },
        is_fast=True,
    ),
    "Lightning": Job(
        os.path.join(EXAMPLES, "lightning"),
        "train.py",
        "lightning.py",
        edits={
            "batch_size=32, shuffle=True": "batch_size={batch_size}, num_workers={workers}, shuffle=True",
            "L.Trainer(": 'L.Trainer(precision="bf16-mixed" if {is_bf16} else "32-true", ',
        },
        is_fast=True,
    ),
}
