"""Trains an auto-encoder on synthetic pictures with PyTorch Lightning. Nothing is downloaded.

It is a script as Lightning's introduction has it, and it knows nothing of gputune; gputune.toml beside it says how it is
tuned. To run it as it is:

    pip install torch lightning
    python3 train.py
"""

import lightning as L
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

SIZE = 28


class Blobs(Dataset):
    """Pictures of one bright spot each, drawn when they are asked for."""

    def __init__(self, length):
        self.length = length
        self.axis = torch.arange(SIZE)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        rng = torch.Generator().manual_seed(index)
        x, y = torch.rand(2, generator=rng) * SIZE
        spot = torch.exp(-((self.axis - x) ** 2)[None, :] / 20 - ((self.axis - y) ** 2)[:, None] / 20)
        return (spot + 0.1 * torch.rand(SIZE, SIZE, generator=rng)).unsqueeze(0)


class AutoEncoder(L.LightningModule):
    def __init__(self, learning_rate=1e-3):
        super().__init__()
        self.learning_rate = learning_rate
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(SIZE * SIZE, 128), nn.ReLU(), nn.Linear(128, 8))
        self.decoder = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, SIZE * SIZE))

    def forward(self, pictures):
        return self.decoder(self.encoder(pictures)).view_as(pictures)

    def training_step(self, pictures, _):
        loss = F.mse_loss(self(pictures), pictures)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, pictures, _):
        self.log("val_loss", F.mse_loss(self(pictures), pictures), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.learning_rate)


def main():
    L.seed_everything(0)
    train_loader = DataLoader(Blobs(16000), batch_size=32, shuffle=True)
    val_loader = DataLoader(Blobs(800), batch_size=100)
    trainer = L.Trainer(max_epochs=20, logger=False, enable_checkpointing=False, enable_model_summary=False)
    trainer.fit(AutoEncoder(), train_loader, val_loader)


if __name__ == "__main__":
    main()
