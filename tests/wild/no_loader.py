"""A language model without a DataLoader: batches are cut out of one long tensor, time first."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="lstm", choices=["lstm", "transformer", "mlp"])
parser.add_argument("--batch_size", type=int, default=20)
parser.add_argument("--bptt", type=int, default=35)
args = parser.parse_args()

TOKENS, WIDTH = 50, 16


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, 2)
        self.head = nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens, hidden):
        outputs, hidden = self.lstm(self.embedding(tokens), hidden)
        return self.head(outputs).view(-1, TOKENS), hidden


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, WIDTH)
        self.head = nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens):
        return self.head(self.layer(self.embedding(tokens))).view(-1, TOKENS)


class Each(nn.Module):
    """Nothing in it says which dimension is time."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.head = nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens):
        return self.head(self.embedding(tokens)).view(-1, TOKENS)


data = torch.randint(TOKENS, (200_000 // args.batch_size, args.batch_size))
model = {"lstm": Recurrent, "transformer": Attention, "mlp": Each}[args.model]()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
hidden = tuple(torch.zeros(2, args.batch_size, WIDTH) for _ in range(2))
for begin in range(0, len(data) - args.bptt - 1, args.bptt):
    tokens = data[begin : begin + args.bptt]
    targets = data[begin + 1 : begin + 1 + args.bptt].reshape(-1)
    optimizer.zero_grad()
    if args.model == "lstm":
        hidden = tuple(part.detach() for part in hidden)
        output, hidden = model(tokens, hidden)
    else:
        output = model(tokens)
    nn.functional.cross_entropy(output, targets).backward()
    optimizer.step()
