"""Trains a small residual network on picture files, decoded and augmented by data workers. Needs PyTorch only."""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import pictures
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

CLASSES = 16


class Pictures(Dataset):
    """Decodes a file, crops a random part of it, scales and mirrors it."""

    def __init__(self, paths, side, repeat):
        self.paths, self.side, self.repeat = paths, side, repeat

    def __len__(self):
        return len(self.paths) * self.repeat

    def __getitem__(self, index):
        file = index % len(self.paths)
        pixels = pictures.read(self.paths[file])
        rng = torch.Generator().manual_seed(index)
        whole = pixels.shape[0]
        part = int(torch.randint(whole * 2 // 3, whole + 1, (1,), generator=rng))
        top, left = torch.randint(whole - part + 1, (2,), generator=rng).tolist()
        crop = pixels[top : top + part, left : left + part].permute(2, 0, 1).float()
        crop = F.interpolate(crop[None], size=(self.side, self.side), mode="bilinear", align_corners=False)[0]
        return crop / 64 - 2, file % CLASSES


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(outputs) for _ in range(2))
        same = stride == 1 and inputs == outputs
        self.around = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        y = self.norms[1](self.second(F.relu(self.norms[0](self.first(x)))))
        return F.relu(y + self.around(x))


def build_model(width):
    layers, inputs = [nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()], width
    for stage in range(4):
        for block in range(2):
            outputs = width * 2**stage
            layers.append(Block(inputs, outputs, 2 if block == 0 and stage > 0 else 1))
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, CLASSES))


def endless(loader):
    while True:
        yield from loader


def limit_memory(gib):
    """A card with less memory, for PyTorch's allocator: more than this is out of memory."""
    if gib and torch.cuda.is_available():
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, gib * 2**30 / total))


def train(args, paths):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    limit_memory(args.memory_gib)
    torch.manual_seed(args.seed)
    data = Pictures(paths, args.side, args.repeat)
    loader = DataLoader(
        data,
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        drop_last=True,
        pin_memory=device == "cuda",
        persistent_workers=args.workers > 0,
    )
    model = build_model(args.width).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    seen, since = 0, time.perf_counter()
    for step, (pixels, labels) in enumerate(endless(loader), start=1):
        pixels, labels = pixels.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        loss = F.cross_entropy(model(pixels), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        seen += len(labels)
        if step == args.steps or time.perf_counter() - since >= 1:
            shown, now = loss.item(), time.perf_counter()
            print(f"step {step}  loss {shown:.3f}  {seen / (now - since):.1f} samples/s", flush=True)
            seen, since = 0, now
        if step == args.steps:
            return


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=1024, help="pictures on disk")
    parser.add_argument(
        "--repeat", type=int, default=64, help="how often each is used in an epoch, each time augmented anew"
    )
    parser.add_argument("--file-side", type=int, default=224, help="pixels")
    parser.add_argument("--side", type=int, default=128, help="pixels, of what the network sees")
    parser.add_argument("--width", type=int, default=64, help="channels of the first stage")
    parser.add_argument("--memory-gib", type=float, default=0, help="act as a GPU with so much memory; 0: as it is")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--format", choices=["auto", "jpg", "png"], default="auto")
    parser.add_argument("--data", default=os.path.join(tempfile.gettempdir(), "gputune-acceptance-pictures"))
    parser.add_argument("--prepare", action="store_true", help="write the pictures and end")
    args = parser.parse_args()
    kind = ("jpg" if pictures.has_pillow() else "png") if args.format == "auto" else args.format
    if kind == "jpg" and not pictures.has_pillow():
        sys.exit("error: --format jpg needs Pillow")
    folder = Path(args.data) / f"{args.files}x{args.file_side}"
    paths = pictures.write_set(folder, args.files, CLASSES, args.file_side, kind)
    if args.prepare:
        print(f"{len(paths)} pictures ({kind}) in {folder}")
    else:
        train(args, paths)


if __name__ == "__main__":
    main()
