"""Every sample is a JPEG that a worker decodes and shrinks; the model is done long before the next batch is."""

import io

import numpy
import torch
from PIL import Image
from torch.utils.data import Dataset

from common import CLASSES, loader_of, options, perceptron, train

SIDE = 32  # of the picture that the model sees


class Photos(Dataset):
    def __init__(self, length, side, is_decoded):
        random = numpy.random.default_rng(0)
        self.length = length
        self.files = [jpeg(random, side) for _ in range(64)]
        self.decoded = [decode(file) for file in self.files] if is_decoded else None

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        at = index % len(self.files)
        picture = decode(self.files[at]) if self.decoded is None else self.decoded[at]
        return picture, index % CLASSES


def jpeg(random, side):
    rough = Image.fromarray(random.integers(0, 256, (side // 8, side // 8, 3), dtype=numpy.uint8))
    grain = random.integers(0, 24, (side, side, 3), dtype=numpy.uint8)
    file = io.BytesIO()
    Image.fromarray(numpy.asarray(rough.resize((side, side))) // 2 + grain).save(file, "jpeg", quality=90)
    return file.getvalue()


def decode(file):
    picture = Image.open(io.BytesIO(file)).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    return torch.from_numpy(numpy.asarray(picture, dtype=numpy.float32).transpose(2, 0, 1) / 255.0)


def main():
    parser = options(__doc__, workers=1)
    parser.add_argument("--side", type=int, default=256, help="of the JPEGs, in pixels")
    parser.add_argument("--decoded", action="store_true", help="the remedy: decode each picture once, before training")
    args = parser.parse_args()
    photos = Photos(100_000, args.side, args.decoded)
    train(args, loader_of(photos, args, shuffle=True), perceptron(3 * SIDE * SIDE, args.width))


if __name__ == "__main__":
    main()
