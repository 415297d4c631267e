"""A config by Hydra, whose help shows it as YAML."""

from dataclasses import dataclass, field

import hydra
from hydra.core.config_store import ConfigStore


@dataclass
class Data:
    path: str = "imgs/"
    batch_size: int = 64
    num_workers: int = 4
    pin_memory: bool = True


@dataclass
class Trainer:
    precision: str = "32-true"
    max_epochs: int = 10
    accumulate_grad_batches: int = 1


@dataclass
class Optimizer:
    lr: float = 1e-3
    betas: list = field(default_factory=lambda: [0.9, 0.999])


@dataclass
class Config:
    data: Data = field(default_factory=Data)
    trainer: Trainer = field(default_factory=Trainer)
    optim: Optimizer = field(default_factory=Optimizer)
    seed: int = 0
    name: str = "run: one"


ConfigStore.instance().store("config", node=Config)


@hydra.main(version_base=None, config_name="config")
def main(config):
    raise SystemExit("it would train")


main()
