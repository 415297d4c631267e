"""Trains in one of the shapes that are hard for a hook; writes what it saw of itself: kernels, rate, memory.

It is a plain script of PyTorch that knows nothing of gputune. It writes every second, as a hook may end it.
"""

import argparse
import atexit
import json
import os
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

CASES = (
    "plain", "epochs", "side-stream", "cpu-first", "slow-steps", "no-workers", "scaler", "attention", "packed", "memory",
    "small",
)  # fmt: skip

#: After so many steps settings and layouts are looked at.
LOOK_AT = 8
#: What a slow step takes of the device, and its batch of the loader.
SLOW_SECONDS, LOAD_SECONDS = 0.7, 0.3


class Pictures(Dataset):
    """Made when they are asked for; its transform converts in the worker, as torchvision's `to_tensor` does."""

    def __init__(self, length, seconds):
        self.length, self.seconds = length, seconds

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        time.sleep(self.seconds)
        picture = torch.full((3, 32, 32), index % 7, dtype=torch.uint8)
        return picture.to(dtype=torch.float32).div(7), index % 10


class Sentences(Dataset):
    """One row of tokens, as packed data has them."""

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        return torch.full((128,), index % 50), torch.full((128,), index % 50)


class Blocks(nn.Module):
    """Convolutions in blocks of one class, which checkpointing can find."""

    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU()) for _ in range(4))
        self.last = nn.Linear(width, 10)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x.mean(dim=(2, 3)))


class Attention(nn.Module):
    """One layer of attention over tokens, in bf16 as fast kernels want it: flash attention has none for fp32."""

    def __init__(self, width):
        super().__init__()
        self.embed, self.mix, self.last = nn.Embedding(50, width), nn.Linear(width, 3 * width), nn.Linear(width, 50)

    def forward(self, x):
        x = self.embed(x)
        parts = self.mix(x).to(torch.bfloat16).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True).to(x.dtype)
        return self.last(mixed.transpose(1, 2).flatten(2))


def switches():
    """Whether TF32 is allowed in products and in convolutions, as this process has it."""
    backends = torch.backends
    try:
        return {"matmul": backends.cuda.matmul.allow_tf32, "cudnn": backends.cudnn.allow_tf32}
    except RuntimeError:  # torch 2.9 and later refuse to tell once the successors of these switches were used
        precisions = {"matmul": backends.cuda.matmul.fp32_precision, "cudnn": backends.cudnn.conv.fp32_precision}
        return {name: precision == "tf32" for name, precision in precisions.items()}


def is_channels_last(model):
    """Whether all weights of convolutions are kept so."""
    weights = [parameter for parameter in model.parameters() if parameter.dim() == 4]
    return bool(weights) and all(weight.is_contiguous(memory_format=torch.channels_last) for weight in weights)


class Witness:
    """What is seen of the run, kept in a file whatever ends it."""

    def __init__(self, path, first):
        """Steps from `first` on are timed."""
        self.path, self.first, self.begun = path, first, time.perf_counter()
        if path:
            # The first run counts: where a setting may change the losses, gputune runs the script again without it.
            try:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                self.path = ""
        self.content = {"steps": 0, "epochs": 0, "evaluations": 0, "losses": [], "forwards": 0, "kernels": []}
        self.content["conversions"] = 0
        self.written = 0.0
        atexit.register(self.write)

    def step(self, loss, model):
        """After each step; without a loss nothing waits for the device."""
        self.content["steps"] += 1
        if loss is not None and len(self.content["losses"]) < 8:
            self.content["losses"].append(float(loss.detach()))
        if self.content["steps"] == LOOK_AT:
            self.content.update(switches=switches(), channels_last=is_channels_last(model))
        now = time.perf_counter()
        timed = self.content["steps"] - self.first
        if timed == 0:
            self.begun = now
        elif timed > 0:
            self.content["step_seconds"] = (now - self.begun) / timed
        if now - self.written > 1:
            self.written = now
            self.write()

    def write(self):
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            self.content["peak_bytes"] = torch.cuda.max_memory_allocated()
        if self.path:
            draft = self.path + ".draft"
            with open(draft, "w") as file:
                json.dump(self.content, file)
            os.replace(draft, self.path)


def side_stream(loader, device):
    """Copies the next batch on a stream of its own while the step runs, as prefetchers of Apex and timm do."""
    stream = torch.cuda.Stream() if device == "cuda" else None
    last = None
    for batch in loader:
        if stream is None:
            moved = [part.to(device) for part in batch]
        else:
            with torch.cuda.stream(stream):
                moved = [part.to(device, non_blocking=True) for part in batch]
        if last is not None:
            yield last
        if stream is not None:
            torch.cuda.current_stream().wait_stream(stream)
        last = moved
    yield last


def build(args):
    """Model, loader and evaluation loader of a case."""
    if args.case in ("attention", "packed"):
        size = 1 if args.case == "packed" else 32
        return Attention(256), DataLoader(Sentences(), batch_size=size, shuffle=True), None
    if args.case == "memory":
        return Blocks(args.width), DataLoader(Pictures(100_000, 0), batch_size=1 << 20, shuffle=True), None
    if args.case == "small":
        rows = TensorDataset(torch.randn(100_000, 64), torch.randint(10, (100_000,)))
        small = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        return small, DataLoader(rows, batch_size=8, shuffle=True), None
    workers = {"epochs": 2, "side-stream": 2}.get(args.case, 0)
    # In the training process: if the next batch is loaded while a step runs, then because nothing waits for that step.
    seconds = LOAD_SECONDS / 8 if args.case == "slow-steps" else 0.0
    length = 8 * args.steps if args.case == "epochs" else 100_000
    loader = DataLoader(Pictures(length, seconds), batch_size=8, shuffle=True, num_workers=workers)
    return Blocks(args.width), loader, DataLoader(Pictures(16, 0), batch_size=8, num_workers=workers)


def cycles_of(seconds):
    """How many cycles of its clock `torch.cuda._sleep` takes for so long."""
    cycles = 100_000_000
    for _ in range(2):  # once to warm up
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        torch.cuda._sleep(cycles)
        end.record()
        end.synchronize()
    return int(seconds * cycles / (begin.elapsed_time(end) / 1000))


def profiled(work, witness, device):
    """Keeps the names of the kernels of some work; of operations where there is no GPU."""
    from torch.profiler import ProfilerActivity, profile

    is_gpu = device == "cuda"
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if is_gpu else [])]) as seen:
        work()
    names = [row.name for row in seen.events() if str(row.device_type).endswith("CUDA") == is_gpu]
    kernels = [name for name in names if not name.startswith(("Memcpy", "Memset"))]
    converts = [name for name in kernels if "nchwtonhwc" in name.lower() or "nhwctonchw" in name.lower()]
    witness.content.update(kernels=sorted(set(kernels)), conversions=len(converts))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--witness", default="")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--steps", type=int, default=40, help="batches of an epoch in `epochs`")
    parser.add_argument("--no-kernels", action="store_true", help="do not look at them")
    parser.add_argument("--seconds", type=float, default=1e9)
    args = parser.parse_args()

    slow = args.case == "slow-steps"
    witness = Witness(args.witness, 2 if slow else 10)
    torch.manual_seed(0)
    model, loader, evaluation = build(args)
    if args.case == "cpu-first":
        model(torch.zeros(2, 3, 32, 32))
    model = model.to(args.device)
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler(args.device) if args.case == "scaler" else None
    if isinstance(model, Blocks):
        # Checkpointing runs what is inside a block twice in a step; a hook of the block itself is called once.
        count = witness.content
        model.blocks[0][0].register_forward_hook(lambda *_: count.update(forwards=count["forwards"] + 1))

    def train(inputs, labels):
        outputs = model(inputs)
        loss = F.cross_entropy(outputs.flatten(0, -2).float(), labels.flatten())
        optimizer.zero_grad()
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        return loss

    cycles = cycles_of(SLOW_SECONDS) if slow and args.device == "cuda" else 0
    looks_at = None if slow or args.no_kernels else 5
    end = time.perf_counter() + args.seconds
    while time.perf_counter() < end:
        witness.content["epochs"] += 1
        moved = ([part.to(args.device, non_blocking=True) for part in batch] for batch in loader)
        for batch in side_stream(loader, args.device) if args.case == "side-stream" else moved:
            if witness.content["steps"] == looks_at:
                profiled(lambda batch=batch: train(*batch), witness, args.device)
            loss = train(*batch)
            if cycles:
                torch.cuda._sleep(cycles)
            elif slow:
                time.sleep(SLOW_SECONDS)
            witness.step(None if slow else loss, model)
            if time.perf_counter() > end:
                return
        if evaluation is not None:
            model.eval()
            with torch.no_grad():
                for batch in evaluation:
                    model(batch[0].to(args.device))
            witness.content["evaluations"] += 1
            model.train()


if __name__ == "__main__":
    main()
