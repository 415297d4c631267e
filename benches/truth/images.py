"""An ordinary image classifier: PNG files are read, decoded, cropped and flipped in the loader. It knows no gputune.

usage: images.py FOLDER    (images are written there once)
"""

import os
import struct
import sys
import zlib

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

COUNT, SIDE, CROP = 2048, 96, 80
SIGNATURE = b"\x89PNG\r\n\x1a\n"


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def write(path, number):
    """A smooth picture with some noise, as a PNG of 8 bits per colour whose lines have no filter."""
    generator = torch.Generator().manual_seed(number)
    coarse = torch.rand(1, 3, 6, 6, generator=generator) * 200
    smooth = nn.functional.interpolate(coarse, size=(SIDE, SIDE), mode="bilinear")[0]
    picture = (smooth + torch.rand(3, SIDE, SIDE, generator=generator) * 40).to(torch.uint8).permute(1, 2, 0)
    lines = torch.cat([torch.zeros(SIDE, 1, dtype=torch.uint8), picture.reshape(SIDE, SIDE * 3)], dim=1)
    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    content = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(lines.flatten().tolist()))) + chunk(b"IEND", b"")
    with open(path + ".part", "wb") as file:
        file.write(SIGNATURE + content)
    os.replace(path + ".part", path)


def read(path):
    """The picture in such a PNG."""
    with open(path, "rb") as file:
        content = file.read()
    place, packed = len(SIGNATURE), b""
    while place < len(content):
        (length,) = struct.unpack_from(">I", content, place)
        if content[place + 4 : place + 8] == b"IDAT":
            packed += content[place + 8 : place + 8 + length]
        place += 12 + length
    lines = torch.frombuffer(bytearray(zlib.decompress(packed)), dtype=torch.uint8).reshape(SIDE, 1 + SIDE * 3)
    return lines[:, 1:].reshape(SIDE, SIDE, 3).permute(2, 0, 1)


class Images(Dataset):
    def __init__(self, folder):
        os.makedirs(folder, exist_ok=True)
        self.paths = [os.path.join(folder, f"{number:05}.png") for number in range(COUNT)]
        for number, path in enumerate(self.paths):
            if not os.path.exists(path):
                write(path, number)

    def __len__(self):
        return COUNT

    def __getitem__(self, number):
        top, left = torch.randint(0, SIDE - CROP, (2,)).tolist()
        picture = read(self.paths[number])[:, top : top + CROP, left : left + CROP].float() / 255
        return (picture.flip(2) if torch.rand(()) < 0.5 else picture), number % 10


def main():
    torch.manual_seed(0)
    loader = DataLoader(Images(sys.argv[1]), batch_size=16, shuffle=True, drop_last=True)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=4), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    for _ in range(1000):
        for pictures, labels in loader:
            optimizer.zero_grad()
            criterion(model(pictures), labels).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
