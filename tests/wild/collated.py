"""Batches whose leading dimension counts something else than samples: time first, packed tokens, points of all clouds."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

parser = argparse.ArgumentParser()
parser.add_argument("shape", choices=["time_first", "packed", "points", "plain"])
parser.add_argument("--data", default="map", choices=["map", "iterable", "whole"], help="whole: the dataset makes batches")
parser.add_argument("--batch_size", type=int, default=6)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--samples", type=int, default=1000)
parser.add_argument("--epochs", type=int, default=4)
args = parser.parse_args()

WIDTH = 4


def sample(index):
    """A sequence, whose length differs from sample to sample where it is packed or a cloud."""
    length = 9 if args.shape in ("time_first", "plain") else 5 + index % 4
    return torch.randn(length, WIDTH)


def collate(sequences):
    if args.shape == "plain":
        return torch.stack(sequences)
    if args.shape == "time_first":
        return torch.stack(sequences, dim=1)
    points = torch.cat(sequences)
    owners = torch.cat([torch.full((len(points),), at) for at, points in enumerate(sequences)])
    if args.shape == "packed":
        return (points[:, 0].unsqueeze(0) * 100).long().abs() % 50, owners.unsqueeze(0)
    return points, owners


class Map(Dataset):
    def __len__(self):
        return args.samples

    def __getitem__(self, index):
        return sample(index)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(sample(index) for index in range(args.samples))


class Whole(Dataset):
    def __len__(self):
        return args.samples // args.batch_size

    def __getitem__(self, index):
        return collate([sample(at) for at in range(args.batch_size)])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(50, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, inputs, *owners):
        if args.shape == "packed":
            inputs = self.tokens(inputs)
        if args.shape == "time_first":
            inputs, _ = self.lstm(inputs)
        return self.head(inputs)


if args.data == "whole":
    loader = DataLoader(Whole(), batch_size=None, num_workers=args.workers)
elif args.data == "iterable":
    loader = DataLoader(Stream(), batch_size=args.batch_size, collate_fn=collate, num_workers=args.workers)
else:
    loader = DataLoader(Map(), args.batch_size, shuffle=True, collate_fn=collate, num_workers=args.workers)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for epoch in range(args.epochs):
    for batch in loader:
        optimizer.zero_grad()
        model(*(batch if isinstance(batch, (tuple, list)) else [batch])).square().mean().backward()
        optimizer.step()
