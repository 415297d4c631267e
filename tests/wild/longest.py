"""Trains on batches that are padded to their longest text. A step takes memory in proportion to its batch, and one text is very long."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=1)
args = parser.parse_args()

#: Bytes that a step takes for each number in its batch.
BYTES = 10_000


class Texts(Dataset):
    def __len__(self):
        return 6000

    def __getitem__(self, index):
        return torch.ones(4096 if index == 4800 else 1 + 2 * (index // 16 % 2))


def main():
    loader = DataLoader(Texts(), args.batch_size, collate_fn=lambda texts: nn.utils.rnn.pad_sequence(texts, True))
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for _ in range(1000):
        for batch in loader:
            activations = torch.ones(batch.numel() * BYTES // 4)
            time.sleep(0.05)
            optimizer.zero_grad()
            model(batch[:, :1]).square().mean().backward()
            optimizer.step()
            del activations


if __name__ == "__main__":
    main()
