"""The Trainer of Lightning, with a validation after each epoch and a checkpoint."""

import argparse
import tempfile

import lightning
import torch
from data import Pictures, network
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--epochs", type=int, default=20)
args = parser.parse_args()


class Model(lightning.LightningModule):
    """A classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def training_step(self, batch):
        return torch.nn.functional.cross_entropy(self.network(batch[0]), batch[1])

    def validation_step(self, batch):
        self.log("loss", torch.nn.functional.cross_entropy(self.network(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


with tempfile.TemporaryDirectory() as folder:
    trainer = lightning.Trainer(
        max_epochs=args.epochs, default_root_dir=folder, logger=False, accelerator="cpu", enable_progress_bar=False
    )
    training = DataLoader(Pictures(2500), batch_size=args.batch_size, num_workers=args.workers, shuffle=True)
    trainer.fit(Model(), training, DataLoader(Pictures(1000), batch_size=50))
