"""Trains a small network on made-up data in several processes, with DistributedDataParallel or FullyShardedDataParallel.

It knows nothing of gputune. To run it as it is, with two processes on one machine:

    pip install torch
    torchrun --nproc-per-node 2 train.py
    torchrun --nproc-per-node 2 train.py --fsdp
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Points(Dataset):
    """Points with a label that depends on them; made when they are asked for."""

    def __len__(self):
        return 200_000

    def __getitem__(self, index):
        point = torch.randn(64, generator=torch.Generator().manual_seed(index))
        return point, (point.sum() > 0).long()


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=32, help="samples of a step, for each process")
    parser.add_argument("--bucket-cap-mb", type=int, default=25, help="megabytes of gradients exchanged at once (DDP)")
    parser.add_argument("--fsdp", action="store_true", help="shard the weights (FSDP) instead of copying them (DDP)")
    arguments = parser.parse_args()

    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2)).to(device)
    if arguments.fsdp:
        mesh = dist.init_device_mesh(device.type, (dist.get_world_size(),))
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        model = fully_shard(model, mesh=mesh)
    else:
        model = DistributedDataParallel(model, bucket_cap_mb=arguments.bucket_cap_mb)
    optimizer = torch.optim.AdamW(model.parameters())
    data = Points()
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=arguments.batch_size, sampler=sampler, drop_last=True)
    for epoch in range(100):
        sampler.set_epoch(epoch)
        for points, labels in loader:
            loss = nn.functional.cross_entropy(model(points.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
