"""A plain PyTorch script that decodes JPEG files.

It makes them once, reads them with Pillow, and trains a small CNN on crops.
"""

import argparse
import os
import tempfile

import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

FILES = 200
CLASSES = 10
SIZE = 64


class Pictures(Dataset):
    """Crops of the files of a folder; more samples than files, as an epoch of so few would be over at once."""

    def __init__(self, folder, length):
        self.paths = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        rng = torch.Generator().manual_seed(index)
        with Image.open(self.paths[index % len(self.paths)]) as picture:
            left, top = (int(torch.randint(0, side - 160, (), generator=rng)) for side in picture.size)
            crop = picture.convert("RGB").crop((left, top, left + 160, top + 160)).resize((SIZE, SIZE))
        pixels = torch.frombuffer(bytearray(crop.tobytes()), dtype=torch.uint8).view(SIZE, SIZE, 3)
        return pixels.permute(2, 0, 1).float() / 255, index % len(self.paths) % CLASSES


def make_pictures(folder):
    """Coarse colours with fine noise, 256 pixels on a side: a JPEG of 20 to 30 kB."""
    if os.path.isdir(folder):
        return
    part = folder + ".part"
    os.makedirs(part, exist_ok=True)
    rng = torch.Generator().manual_seed(0)
    for index in range(FILES):
        coarse = F.interpolate(torch.rand(1, 3, 8, 8, generator=rng), size=(256, 256), mode="bicubic")[0]
        noisy = (coarse + 0.1 * torch.randn(coarse.shape, generator=rng)).clamp(0, 1)
        pixels = (noisy * 255).byte().permute(1, 2, 0).contiguous()
        picture = Image.frombytes("RGB", (256, 256), bytes(pixels.flatten().tolist()))
        picture.save(os.path.join(part, f"{index:04}.jpg"), quality=85)
    os.rename(part, folder)


def build_model():
    layers = []
    for before, after in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(before, after, 3, 2, 1), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--folder", default=os.path.join(tempfile.gettempdir(), "gputune-wall-pictures"))
    args = parser.parse_args()
    torch.manual_seed(0)
    make_pictures(args.folder)
    model = build_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(
        Pictures(args.folder, 20_000), batch_size=args.batch_size, shuffle=True, num_workers=args.workers, drop_last=True
    )
    for _ in range(args.epochs):
        for pictures, labels in loader:
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.precision == "bf16"):
                loss = F.cross_entropy(model(pictures), labels)
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
