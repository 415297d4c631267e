"""Trains on texts of several lengths, and counts tokens. The first argument says how the tokens are told and how texts become tensors."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import gputune

parser = argparse.ArgumentParser()
parser.add_argument("rate", choices=["printed", "reported"])
parser.add_argument("texts", choices=["uneven", "even", "filled", "blocks"])
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--length", type=int, default=16)
args = parser.parse_args()

#: Seconds of a step without tokens, and of a token. A busy machine takes a few milliseconds more for a step.
STEP, TOKEN = 1e-3, 1.5e-5
TOKENS = 1 << 18


class Texts(Dataset):
    """`uneven`: one text in sixteen is long. `filled`: each text is padded to `--length`. `blocks`: all tokens in blocks of `--length`."""

    def __len__(self):
        return TOKENS // args.length if args.texts == "blocks" else TOKENS // 16

    def __getitem__(self, index):
        long = 256 if args.texts == "uneven" and index % 16 == 0 else 16
        return torch.ones(args.length if args.texts in ("filled", "blocks") else long)


def main():
    loader = DataLoader(Texts(), args.batch_size, shuffle=True, collate_fn=lambda texts: nn.utils.rnn.pad_sequence(texts, True))
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    since, tokens = time.perf_counter(), 0
    for _ in range(1000):
        for step, batch in enumerate(loader):
            time.sleep(STEP + TOKEN * batch.numel())
            optimizer.zero_grad()
            model(batch.mean(1, keepdim=True)).square().mean().backward()
            optimizer.step()
            tokens += batch.numel()
            if args.rate == "reported":
                gputune.step(samples=batch.numel())
            elif step % 2 == 1:
                now = time.perf_counter()
                print(f"step {step}: {tokens / (now - since):.1f} tokens/s", flush=True)
                since, tokens = now, 0


if __name__ == "__main__":
    main()
