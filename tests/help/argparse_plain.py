"""The same without the defaults in the help, as most scripts have it."""

import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64, metavar="N", help="input batch size for training (default: 64)")
parser.add_argument("--test-batch-size", type=int, default=1000, metavar="N", help="input batch size for testing (default: 1000)")
parser.add_argument("--num-workers", type=int, default=1, help="workers of the loader")
parser.add_argument("--fp16", action="store_true", default=False, help="half precision")
parser.add_argument("--bf16", action="store_true", default=False, help="bfloat16")
parser.add_argument("--dry-run", action="store_true", default=False, help="quickly check a single pass")
parser.parse_args()
