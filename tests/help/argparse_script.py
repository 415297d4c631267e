"""The arguments of a plain PyTorch script, by argparse of Python's standard library."""

import argparse

parser = argparse.ArgumentParser(
    description="Trains a model. Use -j 4 on the cluster.", formatter_class=argparse.ArgumentDefaultsHelpFormatter
)
parser.add_argument("data", nargs="?", default="imagenet", help="the folder of the pictures")
parser.add_argument("-j", "--workers", default=4, type=int, metavar="N", help="number of data loading workers")
parser.add_argument("--epochs", default=90, type=int, help="number of total epochs to run")
parser.add_argument(
    "-b", "--batch-size", default=256, type=int, help="mini-batch size, the total over all GPUs on the node; it is a long text"
)
parser.add_argument("--val-batch-size", default=512, type=int, help="mini-batch size of the validation")
parser.add_argument("--lr", "--learning-rate", default=0.1, type=float, dest="lr", help="initial learning rate")
parser.add_argument("--amp-dtype", choices=["fp32", "bf16", "fp16"], default="fp32", help="what autocast computes in")
parser.add_argument("--channels-last", action="store_true", help="memory layout")
parser.add_argument("--no-pin-memory", action="store_true", help="batches in pageable memory")
parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=False, help="torch.compile")
parser.add_argument("--accum-steps", type=int, default=1, help="batches of one step, 100%% of them")
parser.parse_args()
