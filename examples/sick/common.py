"""What the scripts of this folder share: their options, a model, the training loop, and a disk that nothing is cached of."""

import argparse
import contextlib
import os
import pathlib
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, default_collate

CLASSES = 10


def options(about, **defaults):
    """The options that all scripts have, with the defaults of this one."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=0, help="processes that load data; 0: load in this one")
    parser.add_argument("--prefetch", type=int, default=2, help="batches that each worker prepares ahead")
    parser.add_argument("--width", type=int, default=512, help="units of each layer: what a step costs")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, default=1, help="of torch on a CPU; the other cores are the loader's")
    parser.add_argument("--log-seconds", type=float, default=2.0, help="time between two lines of output")
    parser.set_defaults(**defaults)
    return parser


def device_of(rank=0):
    return torch.device("cuda", rank) if torch.cuda.is_available() else torch.device("cpu")


def need_gpu(why):
    """Ends a script whose disease no CPU can have."""
    if not torch.cuda.is_available():
        sys.exit(f"error: needs a GPU: {why}")


def perceptron(inputs, width, depth=2):
    layers = [nn.Flatten(), nn.Linear(inputs, width), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, CLASSES))


class Ready(Dataset):
    """Samples that lie in memory, of which a whole batch is taken at once: a loader that costs next to nothing."""

    def __init__(self, length, inputs):
        random = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(length, inputs, generator=random)
        self.labels = torch.randint(CLASSES, (length,), generator=random)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.inputs[index], self.labels[index]

    def __getitems__(self, indices):
        return self[torch.tensor(indices)]


def collate(batch):
    return batch if isinstance(batch, tuple) else default_collate(batch)


def loader_of(dataset, args, **more):
    if args.workers > 0:  # without workers DataLoader refuses these two
        more = {"prefetch_factor": args.prefetch, "persistent_workers": True, **more}
    more.setdefault("pin_memory", torch.cuda.is_available())
    more.setdefault("collate_fn", collate)
    return DataLoader(dataset, batch_size=args.batch_size, num_workers=args.workers, drop_last=True, **more)


def burn(seconds):
    """Python for so long on this thread's processor, whatever else runs on it."""
    end, sum_ = time.thread_time() + seconds, 0
    while time.thread_time() < end:
        sum_ += sum(range(50))
    return sum_


def train(args, loader, model, each_step=None, before_update=None):
    """Plain training: batches of the loader, epoch after epoch, until `--steps` are done."""
    torch.set_num_threads(args.threads)
    device = device_of(int(os.environ.get("LOCAL_RANK", "0")))
    model = model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    step, seen, since = 0, 0, time.perf_counter()
    while step < args.steps:
        for inputs, labels in loader:
            inputs, labels = inputs.to(device, non_blocking=True), labels.to(device, non_blocking=True)
            outputs = model(inputs)
            loss = F.cross_entropy(outputs, labels)
            optimizer.zero_grad()
            loss.backward()
            if before_update is not None:
                before_update(model, loss)
            optimizer.step()
            step, seen = step + 1, seen + len(labels)
            if each_step is not None:
                each_step(step, model, outputs, labels, loss)
            now = time.perf_counter()
            if now - since >= args.log_seconds or step == args.steps:
                print(f"step {step}  loss {loss.item():.3f}  {seen / (now - since):.1f} samples/s", flush=True)
                seen, since = 0, now
            if step == args.steps:
                break


@contextlib.contextmanager
def distributed():
    """The process group that torchrun's variables tell of."""
    device = device_of(int(os.environ.get("LOCAL_RANK", "0")))
    torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield device
    finally:
        torch.distributed.destroy_process_group()


def uncached(descriptor):
    """Has the kernel forget what it cached of an open file, as if the dataset were larger than memory."""
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def disk_folder(args, name):
    """A folder for data on a disk: what lies in memory is cached whatever the kernel is told."""
    folder = pathlib.Path(args.folder or pathlib.Path.home() / ".cache/gputune-sick") / name
    folder.mkdir(parents=True, exist_ok=True)
    probe = folder / f"probe-{os.getpid()}"
    probe.write_bytes(os.urandom(1 << 20))
    with open(probe, "rb", buffering=0) as file:
        os.fsync(file.fileno())
        uncached(file.fileno())
        before = bytes_from_disk()
        file.read()
        is_disk = bytes_from_disk() > before
    probe.unlink()
    if not is_disk:
        sys.exit(f"error: {folder} lies in memory; name a folder on a disk: --folder PATH")
    return folder


def bytes_from_disk():
    with open("/proc/self/io") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("read_bytes"))
