from ast import literal_eval

import torch
from torch.utils.data import DataLoader, TensorDataset


class Node:
    def merge(self, words):
        for word in words:
            path, text = word.split("=")
            *front, last = path[2:].split(".")
            part = self
            for name in front:
                part = getattr(part, name)
            setattr(part, last, literal_eval(text))


class Trainer:
    @staticmethod
    def defaults():
        C = Node()
        C.num_workers = 2
        C.batch_size = 48
        C.rate = 1e-3
        return C

    def __init__(self, config):
        self.config = config

    def run(self):
        data = TensorDataset(torch.randn(4096, 8), torch.randint(0, 2, (4096,)))
        model = torch.nn.Linear(8, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=self.config.rate)
        loader = DataLoader(data, shuffle=True, batch_size=self.config.batch_size, num_workers=self.config.num_workers)
        while True:
            for inputs, labels in loader:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(inputs), labels).backward()
                optimizer.step()
