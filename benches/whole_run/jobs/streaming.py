"""A stream without a length, trained for a number of steps."""

import argparse
import itertools

import torch
from data import Pictures, network
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--max-steps", type=int, default=4000)
args = parser.parse_args()


class Stream(IterableDataset):
    """Pictures without end; each worker has its share."""

    def __iter__(self):
        pictures, worker = Pictures(64), get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        return (pictures[index] for index in itertools.count(first, step))


model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(Stream(), batch_size=args.batch_size, num_workers=args.workers)
for step, (pictures, labels) in enumerate(itertools.islice(loader, args.max_steps)):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(pictures), labels)
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step} loss {loss.item():.3f}", flush=True)
