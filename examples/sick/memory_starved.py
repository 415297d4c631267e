"""Samples are mapped from a file that does not fit into the memory that is left, so the kernel frees pages to read others.

As root, and where the kernel has control groups for memory, the script limits its own memory after its first steps. Elsewhere
start it in a container with little memory, and with `--room-mib 0`."""

import mmap
import os
import pathlib
import sys

import torch
from torch.utils.data import Dataset

from common import CLASSES, disk_folder, loader_of, options, perceptron, train, uncached

BYTES = 1 << 18  # of a sample


class Group:
    """A control group that this process is in, of version 1 or 2, to limit its memory by."""

    def __init__(self):
        for root, self.limit, self.held in (("memory", "memory.limit_in_bytes", "rss "), ("", "memory.max", "anon ")):
            self.folder = pathlib.Path("/sys/fs/cgroup") / root / "gputune-sick"
            try:
                self.folder.mkdir(exist_ok=True)
                (self.folder / self.limit).write_text(str(1 << 40))
                (self.folder / "cgroup.procs").write_text(str(os.getpid()))
                return
            except OSError as error:
                why = error
        sys.exit(f"error: memory cannot be limited here ({why}); use a container with little of it and --room-mib 0")

    def leave(self, room):
        """Leaves so many bytes beside what the processes hold."""
        lines = (self.folder / "memory.stat").read_text().splitlines()
        held = next(int(line.split()[1]) for line in lines if line.startswith(self.held))
        (self.folder / self.limit).write_text(str(held + room))


class Mapped(Dataset):
    def __init__(self, path, samples):
        self.samples = samples
        if not path.exists() or path.stat().st_size != samples * BYTES:
            with open(path, "wb") as file:
                for _ in range(samples):
                    file.write(os.urandom(BYTES))
                os.fsync(file.fileno())
        with open(path, "r+b") as file:
            uncached(file.fileno())  # so that its pages are charged to this group
            self.map = mmap.mmap(file.fileno(), 0)

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        sample = torch.frombuffer(self.map, dtype=torch.uint8, count=BYTES, offset=index * BYTES)
        return sample.view(-1, 256).sum(dim=1).float() / 32768, index % CLASSES


def main():
    parser = options(__doc__, batch_size=16, width=1024)
    parser.add_argument("--samples", type=int, default=192, help="of 256 KiB")
    parser.add_argument("--room-mib", type=int, default=32, help="for the file's pages; 0, the remedy: as much as there is")
    parser.add_argument("--folder", help="where the file is made; by default ~/.cache/gputune-sick")
    args = parser.parse_args()
    folder = disk_folder(args, "mapped")
    group = Group() if args.room_mib > 0 else None

    def limit(step, *_):
        if group is not None and step == 5:
            group.leave(args.room_mib << 20)

    samples = Mapped(folder / f"{args.samples}.bin", args.samples)
    train(args, loader_of(samples, args, shuffle=True), perceptron(BYTES // 256, args.width), limit)


if __name__ == "__main__":
    main()
