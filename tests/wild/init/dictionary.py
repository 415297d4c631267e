"""Its settings are a dictionary at the top, and nothing reads its command line."""
import torch
from torch.utils.data import DataLoader, TensorDataset

config = {
    "batch_size": 48,  # rows
    "num_workers": 3,
    "lr": 0.1,
}

data = TensorDataset(torch.randn(4096, 8), torch.randint(0, 2, (4096,)))
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
test = DataLoader(data, batch_size=1000)
loader = DataLoader(data, batch_size=config["batch_size"], num_workers=config["num_workers"], shuffle=True)
while True:
    for inputs, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
