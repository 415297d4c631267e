"""The parts of examples/lightning for loadtune's adapter, which trains them in a loop of its own, without the Trainer.

It takes the data from a data module only, and calls `training_step` with `batch_idx` by name.
"""

import lightning as L
import train
from loadtune import from_lightning
from torch.utils.data import DataLoader


class AutoEncoder(train.AutoEncoder):
    def training_step(self, pictures, batch_idx):
        return super().training_step(pictures, batch_idx)


class Data(L.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(train.Blobs(16000), batch_size=32, shuffle=True)


def get_workload():
    return from_lightning(AutoEncoder(), datamodule=Data())
