"""A flag turns on mixed precision; its format is torch's choice for the device."""
import argparse

import torch
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", "-b", type=int, default=4)
parser.add_argument("--amp", action="store_true", default=False, help="mixed precision")
args = parser.parse_args()
data = TensorDataset(torch.randn(4096, 8), torch.randint(0, 2, (4096,)))
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
device = "cuda" if torch.cuda.is_available() else "cpu"
while True:
    for inputs, labels in DataLoader(data, batch_size=args.batch_size, shuffle=True):
        with torch.autocast(device, enabled=args.amp):
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
