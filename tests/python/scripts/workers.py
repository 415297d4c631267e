"""Trains with workers that start by the method START, and prints the settings of the loader."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DEVICE = os.environ.get("DEVICE", "cpu")


class Squares(Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        return torch.full((4,), float(index)), torch.tensor([float(index**2)])


def main():
    loader = DataLoader(
        Squares(), 8, shuffle=True, num_workers=2, multiprocessing_context=os.environ["START"], prefetch_factor=3
    )
    print("workers", loader.num_workers, loader.prefetch_factor, loader.persistent_workers)
    model = nn.Linear(4, 1).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    for epoch in range(2):
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs.to(DEVICE)), targets.to(DEVICE)).backward()
            optimizer.step()
    print("trained")


if __name__ == "__main__":
    main()
