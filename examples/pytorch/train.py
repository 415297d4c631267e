"""Trains a small CNN to tell eight orientations of a striped pattern apart. Needs PyTorch 1.13 or later only."""

import argparse
import math
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

CLASSES = 8
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Stripes(Dataset):
    """Noisy stripes; every picture is drawn and augmented on the CPU when it is asked for."""

    def __init__(self, length, size):
        self.length = length
        self.size = size
        axis = torch.linspace(-1, 1, 2 * size)
        self.y, self.x = torch.meshgrid(axis, axis, indexing="ij")

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        rng = torch.Generator().manual_seed(index)
        label = index % CLASSES
        frequency, phase, zoom = torch.rand(3, generator=rng).tolist()
        angle = math.pi * label / CLASSES
        wave = (12 + 6 * frequency) * (self.x * math.cos(angle) + self.y * math.sin(angle))
        picture = torch.stack([torch.sin(wave + 7 * phase + channel) for channel in range(3)])
        picture = picture + 0.5 * torch.randn(picture.shape, generator=rng)
        # Random crop, blur and resize: the usual work of a loader.
        side = int(self.size * (1 + zoom))
        top, left = torch.randint(2 * self.size - side + 1, (2,), generator=rng).tolist()
        picture = picture[:, top : top + side, left : left + side]
        picture = F.avg_pool2d(picture.unsqueeze(0), 3, stride=1, padding=1)
        picture = F.interpolate(picture, size=(self.size, self.size), mode="bilinear", align_corners=False)[0]
        return (picture - picture.mean()) / (picture.std() + 1e-6), label


def build_model():
    def block(inputs, outputs):
        return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]

    return nn.Sequential(*block(3, 16), *block(16, 32), *block(32, 64), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(64, CLASSES))


def build_loader(args, device):
    options = {}
    if args.workers > 0:  # without workers DataLoader refuses these two
        options = {"prefetch_factor": args.prefetch, "persistent_workers": True}
    return DataLoader(Stripes(args.samples, args.image_size), batch_size=args.batch_size, shuffle=True,
                      num_workers=args.workers, pin_memory=device == "cuda", drop_last=True, **options)


def build_scaler(enabled):
    if hasattr(torch.amp, "GradScaler"):  # since PyTorch 2.3
        return torch.amp.GradScaler("cuda", enabled=enabled)
    return torch.cuda.amp.GradScaler(enabled=enabled)


def endless(loader):
    while True:
        yield from loader


def train(args):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if args.precision == "fp16" and device == "cpu":
        sys.exit("error: --precision fp16 needs a GPU")
    if args.batch_size > args.samples:
        sys.exit("error: --batch-size is larger than --samples")
    torch.manual_seed(args.seed)
    model = build_model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scaler = build_scaler(device == "cuda" and args.precision == "fp16")
    autocast = {"device_type": device, "dtype": DTYPES[args.precision], "enabled": args.precision != "fp32"}
    if args.precision == "fp32":
        autocast["dtype"] = torch.bfloat16  # not used, but the CPU's autocast warns about float32

    seen, since = 0, time.perf_counter()
    for step, (pictures, labels) in enumerate(endless(build_loader(args, device)), start=1):
        pictures = pictures.to(device, non_blocking=True)
        labels = labels.to(device, non_blocking=True)
        with torch.autocast(**autocast):
            loss = F.cross_entropy(model(pictures), labels)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        seen += len(labels)

        if time.perf_counter() - since >= args.log_seconds or step == args.steps:
            shown = loss.item()  # waits for the GPU, so it comes before the clock is read
            now = time.perf_counter()
            print(f"step {step}  loss {shown:.3f}  {seen / (now - since):.1f} samples/s")
            seen, since = 0, now
        if step == args.steps:
            break


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=0, help="processes that load data; 0: load in this one")
    parser.add_argument("--prefetch", type=int, default=2, help="batches that each worker prepares ahead")
    parser.add_argument("--precision", choices=DTYPES, default="fp32")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--samples", type=int, default=20000, help="pictures in an epoch")
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--log-seconds", type=float, default=1.0, help="time between two lines of output")
    parser.add_argument("--seed", type=int, default=0)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
