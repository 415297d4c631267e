"""A distributed training script whose rank 1 fails in the way that the first argument names."""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist

FAILURE = sys.argv[1]


def main():
    print("starts", flush=True)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    print(f"rank {rank} of {dist.get_world_size()} is there", flush=True)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(torch.ones(100_000, 16), batch_size=8)
    for step, batch in enumerate(loader):
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.01)
        if step == 20 and rank == 1:
            if FAILURE == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if FAILURE == "raises":
                raise ValueError("rank 1 has no data")
            if FAILURE == "hangs":
                time.sleep(600)
            if FAILURE == "stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
        if step == 20:
            dist.all_reduce(torch.zeros(1))


if __name__ == "__main__":
    main()
