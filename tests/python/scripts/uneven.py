"""Trains on batches that are padded to their longest text. One text in eighty is ten times as long as the others.

On a device a step allocates 1 GiB for each 32 elements of its batch. STEPS is the number of steps; with KIND=stream the
dataset is iterable.
"""

import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

STEPS = int(os.environ.get("STEPS", "30"))
DEVICE = os.environ.get("DEVICE", "cpu")
IS_CUDA = DEVICE == "cuda"


class Texts(Dataset):
    def __len__(self):
        return 480

    def __getitem__(self, index):
        return torch.ones(40 if index % 80 == 79 else 4)


class Stream(IterableDataset):
    def __iter__(self):
        texts = Texts()
        return (texts[index] for index in range(len(texts)))


def main():
    dataset = Stream() if os.environ.get("KIND") == "stream" else Texts()
    loader = DataLoader(dataset, batch_size=8, collate_fn=lambda texts: nn.utils.rnn.pad_sequence(texts, batch_first=True))
    model = nn.Linear(1, 1).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    held, number = None, 0
    for batch in loader:
        if IS_CUDA:
            if held is not None:
                torch.cuda.caching_allocator_delete(held)
            held = torch.cuda.caching_allocator_alloc(batch.numel() * (1 << 30) // 32)
        number += 1
        print("elements", number, batch.numel(), flush=True)
        optimizer.zero_grad()
        model(batch[:, :1].to(DEVICE)).square().mean().backward()
        time.sleep(0.01)
        optimizer.step()
        if number == STEPS:
            break


if __name__ == "__main__":
    main()
