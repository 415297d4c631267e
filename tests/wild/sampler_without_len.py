"""A batch sampler of the script's own: batches of as many samples as fit, and no length."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZES = [3, 5, 2, 6]


class Lengths(Dataset):
    def __getitem__(self, index):
        return torch.randn(7, 4)

    def __len__(self):
        return 10_000


class Buckets:
    """As many as fit into a budget of tokens; how many batches that makes is not known before."""

    def __iter__(self):
        begin = 0
        while begin + 6 < 10_000:
            size = SIZES[begin % len(SIZES)]
            # Both are what torch takes: a list, and anything that can be iterated.
            yield list(range(begin, begin + size)) if begin % 2 else torch.arange(begin, begin + size)
            begin += size


def time_first(sequences):
    return torch.stack(sequences, dim=1)


loader = DataLoader(
    Lengths(), batch_sampler=Buckets(), collate_fn=time_first, num_workers=int(os.environ.get("WORKERS", "0"))
)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for batch in loader:
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
