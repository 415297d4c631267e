"""Picture files for images.py: JPEG where Pillow is there, else PNG, written and read with the standard library."""

import ctypes
import math
import struct
import zlib
from pathlib import Path

import torch

try:
    from PIL import Image
except ImportError:
    Image = None

SIGNATURE = b"\x89PNG\r\n\x1a\n"
NO_FILTER, SUB, UP = 0, 1, 2


def has_pillow():
    return Image is not None


def draw(index, classes, side):
    """A noisy striped picture, red, green and blue in eight bits, whose orientation is its class."""
    rng = torch.Generator().manual_seed(index)
    frequency, phase = torch.rand(2, generator=rng).tolist()
    axis = torch.linspace(-1, 1, side)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    angle = math.pi * (index % classes) / classes
    wave = (12 + 6 * frequency) * (x * math.cos(angle) + y * math.sin(angle))
    picture = torch.stack([torch.sin(wave + 7 * phase + colour) for colour in range(3)], dim=-1)
    noisy = 127.5 + 80 * picture + 20 * torch.randn(picture.shape, generator=rng)
    return noisy.clamp(0, 255).to(torch.uint8)


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def raw(tensor):
    """The bytes of a tensor, without NumPy, which PyTorch does not need."""
    whole = tensor.contiguous()
    return ctypes.string_at(whole.data_ptr(), whole.numel() * whole.element_size())


def encode_png(pixels):
    """Rows that differ little from the one above become small: every row has the filter `up`, the first none."""
    height, width, _ = pixels.shape
    rows = pixels.reshape(height, -1)
    filtered = torch.cat([rows[:1], rows[1:] - rows[:-1]])
    kinds = torch.full((height, 1), UP, dtype=torch.uint8)
    kinds[0] = NO_FILTER
    data = zlib.compress(raw(torch.cat([kinds, filtered], dim=1)), 3)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return SIGNATURE + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def decode_png(content):
    """Decodes PNG files of eight-bit red, green and blue whose rows have no filter, `sub` or `up`."""
    if content[:8] != SIGNATURE:
        raise ValueError("no PNG file")
    at, data, size = 8, b"", None
    while at < len(content):
        length, kind = struct.unpack(">I4s", content[at : at + 8])
        body = content[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            size = struct.unpack(">IIBBBBB", body)
        elif kind == b"IDAT":
            data += body
        at += length + 12
    if size is None or size[2:] != (8, 2, 0, 0, 0):
        raise ValueError(f"not eight-bit red, green and blue: {size}")
    width, height = size[:2]
    lines = torch.frombuffer(bytearray(zlib.decompress(data)), dtype=torch.uint8).reshape(height, 1 + 3 * width)
    kinds, rows = lines[:, 0], lines[:, 1:].clone()
    if (kinds > UP).any():
        raise ValueError("a row has a filter that is not known here")
    for row in (kinds == SUB).nonzero().flatten().tolist():
        rows[row] = rows[row].reshape(width, 3).cumsum(0, dtype=torch.uint8).reshape(-1)
    # Rows with `up` add to the row above, so each is the sum of its run of such rows, from the one before the run on.
    starts = (kinds != UP).nonzero().flatten().tolist()
    if not starts or starts[0] != 0:
        starts.insert(0, 0)
    for first, last in zip(starts, [*starts[1:], height]):
        rows[first:last] = rows[first:last].cumsum(0, dtype=torch.uint8)
    return rows.reshape(height, width, 3)


def write_set(folder, count, classes, side, kind):
    """Writes the pictures that are missing. Safe to be interrupted: a file appears when it is complete."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{index:05}.{kind}" for index in range(count)]
    for index, path in enumerate(paths):
        if path.exists():
            continue
        pixels, draft = draw(index, classes, side), path.with_suffix(".draft")
        if kind == "jpg":
            Image.frombytes("RGB", (side, side), raw(pixels)).save(draft, "JPEG", quality=90)
        else:
            draft.write_bytes(encode_png(pixels))
        draft.replace(path)
    return paths


def read(path):
    """Pixels of a file: height, width, colours."""
    if path.suffix == ".jpg":
        with Image.open(path) as image:
            content = bytearray(image.convert("RGB").tobytes())
            return torch.frombuffer(content, dtype=torch.uint8).reshape(image.height, image.width, 3)
    return decode_png(path.read_bytes())
