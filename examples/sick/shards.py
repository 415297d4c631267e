"""Samples of one large file, read in random order and never from the page cache; what kind of file can be chosen.

As in `small_files.py` the file is made at the first run, its pages are dropped after each sample, and a network disk's way
there and back is simulated."""

import io
import os
import struct
import tarfile
import time

import numpy
import torch
from torch.utils.data import Dataset

from common import CLASSES, disk_folder, loader_of, options, perceptron, train, uncached

SAMPLES, BYTES = 4096, 4096


def pack_tar(path):
    with tarfile.open(path, "w") as tar:
        for number in range(SAMPLES):
            member = tarfile.TarInfo(f"{number:06}.npy")
            member.size = BYTES
            tar.addfile(member, io.BytesIO(os.urandom(BYTES)))


def pack_records(path):
    """TFRecord's frame: length, its checksum, the record, its checksum; nobody here reads the checksums."""
    with open(path, "wb") as file:
        file.writelines(struct.pack("<QI", BYTES, 0) + os.urandom(BYTES + 4) for _ in range(SAMPLES))


def random_samples():
    return numpy.frombuffer(os.urandom(SAMPLES * BYTES), dtype=numpy.uint8).reshape(SAMPLES, BYTES)


def pack_hdf5(path):
    with __import__("h5py").File(path, "w") as file:
        file.create_dataset("samples", data=random_samples(), chunks=(16, BYTES), compression="gzip", compression_opts=1)


# How to make a file, its name, and where its samples lie: the first one's offset, and from one to the next.
KINDS = {
    "webdataset": (pack_tar, "samples.tar", 512, 512 + BYTES),
    "tfrecord": (pack_records, "samples.tfrecord", 12, 16 + BYTES),
    "npy": (lambda path: numpy.save(path, random_samples()), "samples.npy", 128, BYTES),
    "hdf5": (pack_hdf5, "samples.h5", None, None),
}


class Shard(Dataset):
    def __init__(self, folder, kind, latency):
        pack, name, self.start, self.stride = KINDS[kind]
        self.path, self.latency, self.file = folder / name, latency, None
        if not self.path.exists():
            pack(self.path)
        os.sync()

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        if self.file is None:  # each worker opens its own
            self.file = open(self.path, "rb") if self.stride else __import__("h5py").File(self.path)
        time.sleep(self.latency)
        if self.stride:
            self.file.seek(self.start + index * self.stride)
            sample = self.file.read(BYTES)
            uncached(self.file.fileno())
        else:
            sample = self.file["samples"][index].tobytes()
        return torch.frombuffer(bytearray(sample), dtype=torch.uint8)[::2].float() / 255.0, index % CLASSES


def main():
    parser = options(__doc__, workers=1)
    parser.add_argument("--kind", choices=KINDS, default="webdataset")
    parser.add_argument("--folder", help="where the file is made; by default ~/.cache/gputune-sick")
    parser.add_argument("--latency-ms", type=float, default=1.0, help="what the network adds for each sample")
    args = parser.parse_args()
    shard = Shard(disk_folder(args, "shards"), args.kind, args.latency_ms / 1000)
    train(args, loader_of(shard, args, shuffle=True), perceptron(BYTES // 2, args.width))


if __name__ == "__main__":
    main()
