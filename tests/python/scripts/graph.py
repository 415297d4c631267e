"""Whole steps in a CUDA graph, as PyTorch's notes on CUDA show it: warm-up in a stream of its own, capture, replays."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs, targets = torch.randn(16, 4, device="cuda"), torch.randn(16, 1, device="cuda")


def step():
    optimizer.zero_grad(set_to_none=True)
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    torch.cuda._sleep(10_000_000)


stream = torch.cuda.Stream()
stream.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(stream):
    for _ in range(3):
        step()
torch.cuda.current_stream().wait_stream(stream)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    step()
for _ in range(20):
    inputs.copy_(torch.randn(16, 4))
    graph.replay()
print("trained")
