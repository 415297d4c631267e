"""Trains a small network on the GPU with one thing wrong, as scripts have it; `healthy` has nothing wrong."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    """Rows of numbers, each after some work of the loader."""

    def __init__(self, width, seconds):
        self.width, self.seconds = width, seconds

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        if self.seconds:
            end = time.perf_counter() + self.seconds
            while time.perf_counter() < end:
                pass
        return torch.full((self.width,), index % 3, dtype=torch.float32), index % 10


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=("pageable", "item", "tiny", "fp32", "starved", "healthy"))
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    is_small = args.device == "cpu"
    # Bytes of a batch matter to copies, operations to precision, launches to a tiny batch.
    width = 256 if is_small else {"pageable": 65536, "tiny": 64}.get(args.case, 4096)
    hidden, layers = (32, 2) if is_small else {"pageable": (64, 1), "tiny": (64, 30)}.get(args.case, (8192, 4))
    batch = {"tiny": 2, "pageable": 512}.get(args.case, 16 if is_small else 256)
    torch.set_float32_matmul_precision("highest" if args.case == "fp32" else "high")
    inner = [layer for _ in range(layers) for layer in (nn.Linear(hidden, hidden), nn.ReLU())]
    model = nn.Sequential(nn.Linear(width, hidden), *inner, nn.Linear(hidden, 10)).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = DataLoader(
        Rows(width, 0.002 if args.case == "starved" else 0.0),
        batch_size=batch,
        shuffle=True,
        num_workers=0 if args.case == "starved" else 8,
        pin_memory=args.case not in ("pageable", "starved"),
    )
    is_half = args.case not in ("fp32", "tiny")
    for inputs, labels in loader:
        inputs = inputs.to(args.device, non_blocking=args.case != "pageable")
        labels = labels.to(args.device, non_blocking=args.case != "pageable")
        with torch.autocast(args.device, dtype=torch.bfloat16, enabled=is_half):
            loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if args.case == "item":
            for parameter in model.parameters():
                parameter.grad.norm().item()


if __name__ == "__main__":
    main()
