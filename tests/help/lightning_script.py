"""A LightningCLI with a model and a data module."""

import torch
from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.cli import LightningCLI


class Model(LightningModule):
    def __init__(self, width: int = 8):
        super().__init__()
        self.layer = torch.nn.Linear(width, 1)


class Data(LightningDataModule):
    def __init__(self, batch_size: int = 32, num_workers: int = 0):
        """
        Args:
            batch_size: Samples of a step.
            num_workers: Processes that load.
        """
        super().__init__()


LightningCLI(Model, Data)
