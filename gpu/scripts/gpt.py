"""Trains a small language model of transformer blocks on text that it makes itself. Needs PyTorch only."""

import argparse
import time

import torch
from images import endless, limit_memory
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

TOKENS = 512
LENGTH = 1 << 18


class Text(Dataset):
    """Sequences from a chain in which each token follows from the two before it, with some noise."""

    def __init__(self, context):
        rng = torch.Generator().manual_seed(0)
        noise = torch.randint(0, TOKENS, (LENGTH,), generator=rng).tolist()
        is_noise = (torch.rand(LENGTH, generator=rng) < 0.1).tolist()
        tokens = noise[:2]
        for position in range(2, LENGTH):
            follows = (3 * tokens[-1] + 5 * tokens[-2] + 7) % TOKENS
            tokens.append(noise[position] if is_noise[position] else follows)
        self.tokens, self.context = torch.tensor(tokens), context

    def __len__(self):
        return LENGTH - self.context - 1

    def __getitem__(self, index):
        sequence = self.tokens[index : index + self.context + 1]
        return sequence[:-1], sequence[1:]


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.inputs, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.inputs(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        return self.output(mixed.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    """Attention and two linear layers, each beside a way around."""

    def __init__(self, width, heads):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attention = Attention(width, heads)
        self.linear = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        return x + self.linear(self.norms[1](x))


class Gpt(nn.Module):
    """The model."""

    def __init__(self, width, heads, layers, context):
        super().__init__()
        self.tokens, self.places = nn.Embedding(TOKENS, width), nn.Embedding(context, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm, self.output = nn.LayerNorm(width), nn.Linear(width, TOKENS)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.places(places)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))


def train(args):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    limit_memory(args.memory_gib)
    torch.manual_seed(args.seed)
    loader = DataLoader(
        Text(args.context),
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        pin_memory=device == "cuda",
        drop_last=True,
        persistent_workers=args.workers > 0,
    )
    model = Gpt(args.width, args.heads, args.layers, args.context).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    seen, since = 0, time.perf_counter()
    for step, (tokens, following) in enumerate(endless(loader), start=1):
        tokens, following = tokens.to(device, non_blocking=True), following.to(device, non_blocking=True)
        logits = model(tokens)
        loss = F.cross_entropy(logits.view(-1, TOKENS), following.view(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        seen += len(tokens)
        if step == args.steps or time.perf_counter() - since >= 1:
            shown, now = loss.item(), time.perf_counter()
            print(f"step {step}  loss {shown:.3f}  {seen / (now - since):.1f} samples/s", flush=True)
            seen, since = 0, now
        if step == args.steps:
            return


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--context", type=int, default=256, help="tokens of a sequence")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--memory-gib", type=float, default=0, help="act as a GPU with so much memory; 0: as it is")
    parser.add_argument("--seed", type=int, default=0)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
