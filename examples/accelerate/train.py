"""Trains a small CNN on synthetic pictures with a loop of one's own and Hugging Face Accelerate. Nothing is downloaded.

It knows nothing of gputune; gputune.toml beside it says how it is tuned. To run it as it is:

    pip install torch accelerate
    accelerate launch train.py        # or: python3 train.py
"""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, Dataset

CLASSES = 10
BATCH_SIZE = 16
EPOCHS = 10


class Tiles(Dataset):
    """Noisy pictures, each with the pattern of its class."""

    def __init__(self, length, seed):
        self.length = length
        self.seed = seed
        self.patterns = torch.randn(CLASSES, 3, 24, 24, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        rng = torch.Generator().manual_seed(self.seed + index)
        label = index % CLASSES
        return {"image": self.patterns[label] + 2 * torch.randn(3, 24, 24, generator=rng), "label": label}


def build_model():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(32, CLASSES),
    )  # fmt: skip


def evaluate(accelerator, model, loader):
    model.eval()
    right, total = 0, 0
    for batch in loader:
        with torch.no_grad():
            guesses = model(batch["image"]).argmax(dim=-1)
        guesses, labels = accelerator.gather_for_metrics((guesses, batch["label"]))
        right += (guesses == labels).sum().item()
        total += len(labels)
    return right / total


def main():
    accelerator = Accelerator()
    set_seed(0)
    train_loader = DataLoader(Tiles(16000, 0), batch_size=BATCH_SIZE, shuffle=True)
    eval_loader = DataLoader(Tiles(500, 10**6), batch_size=50)
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = OneCycleLR(optimizer, max_lr=3e-3, epochs=EPOCHS, steps_per_epoch=len(train_loader))
    model, optimizer, train_loader, eval_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, eval_loader, scheduler
    )
    for epoch in range(EPOCHS):
        model.train()
        for batch in train_loader:
            loss = F.cross_entropy(model(batch["image"]), batch["label"])
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        accelerator.print(f"epoch {epoch}  accuracy {evaluate(accelerator, model, eval_loader):.3f}")


if __name__ == "__main__":
    main()
