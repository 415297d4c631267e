"""Its help cannot be had: a module is missing."""
import argparse

import a_module_that_nobody_has  # noqa: F401
import torch
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("-b", "--batch-size", type=int, default=256)
parser.add_argument("-j", "--workers", type=int, default=2)
parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=False)
args = parser.parse_args()
loader = DataLoader(torch.load(args.data), batch_size=args.batch_size, num_workers=args.workers)
