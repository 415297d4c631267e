"""Makes for each epoch a loader with a new class of dataset and a wrapped batch sampler.

Prints the size of each batch, then the notes of the first run.
"""

import argparse
import glob
import json
import os

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--bs", type=int, default=4)
args = parser.parse_args()
with open("settings.json", "w") as file:
    file.write("{}")
with open("settings.json") as file:
    json.load(file)
# What is only copied or listed is no setting.
os.environ["LISTED_ONLY"] = "9"
dict(os.environ), sorted(os.environ.items()), [os.environ.get(name) for name in os.environ]
os.environ.get("SIZE_OF_NOTHING", "7")
os.environ.get("HOME")


class Around:
    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        return iter(self.sampler)

    def __len__(self):
        return len(self.sampler)


def epoch():
    class Data(TensorDataset):
        pass

    data = Data(torch.randn(32, 2))
    return DataLoader(data, batch_sampler=Around(BatchSampler(RandomSampler(data), args.bs, False)))


model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    for (batch,) in epoch():
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        print("batch", len(batch), flush=True)

for name in glob.glob(os.path.join(os.environ["PYTHONPATH"].split(os.pathsep)[0], "first-run-*")):
    with open(name) as file:
        print(file.read(), flush=True)
