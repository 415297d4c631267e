"""Images that cost some time to decode, and a small model, for all jobs of this folder."""

from __future__ import annotations

import io

import numpy
import torch
from PIL import Image
from torch import nn
from torch.utils.data import Dataset

SIDE = 64
CLASSES = 10


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    """JPEG files in memory, each decoded and resized when it is asked for."""

    def __init__(self, count: int) -> None:
        self.count = count
        random = numpy.random.default_rng(0)
        self.files = []
        for _ in range(64):
            pixels = random.integers(0, 255, (16, 16, 3), dtype=numpy.uint8)
            file = io.BytesIO()
            Image.fromarray(pixels).resize((320, 320)).save(file, "JPEG", quality=90)
            self.files.append(file.getvalue())

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with Image.open(io.BytesIO(self.files[index % len(self.files)])) as picture:
            pixels = numpy.asarray(picture.resize((SIDE, SIDE)), dtype=numpy.float32)
        return torch.from_numpy(pixels / 255).permute(2, 0, 1), index % CLASSES


def network() -> nn.Module:
    """A small convolutional network."""
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(24, 48, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(48 * 16, CLASSES),
    )
