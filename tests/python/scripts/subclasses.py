"""Moves special tensors to the device: images of torchvision in each step, then a tensor subclass and lazy layers."""

import os

import torch
from torch import nn

DEVICE = os.environ.get("DEVICE", "cpu")


class Named(torch.Tensor):
    """Records the functions of torch that it receives. It knows the functions as they were when this class was made."""

    KNOWN = {torch.Tensor.to: "to", torch.Tensor.cpu: "cpu", torch.Tensor.cuda: "cuda"}
    seen = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in cls.KNOWN:
            cls.seen.append(cls.KNOWN[func])
        return super().__torch_function__(func, types, args, kwargs or {})


tv_tensors = None
if "TORCHVISION" in os.environ:
    from torchvision import tv_tensors

model = nn.Linear(12, 1).to(DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kinds = []
for step in range(4):
    image = torch.ones(3, 2, 2)
    if tv_tensors is not None:
        image = tv_tensors.Image(image)
    image = image.to(DEVICE)
    kinds.append(type(image).__name__)
    loss = model(torch.Tensor.to(torch.ones(1, 12), DEVICE)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
named = torch.ones(2).as_subclass(Named)
named.to(DEVICE).cpu().cuda()
lazy = nn.LazyLinear(2).to(DEVICE)
print("lazy", lazy(torch.ones(1, 3, device=DEVICE)).device.type)
print("lazy", nn.LazyLinear(2).cuda().cpu()(torch.ones(1, 3)).shape)
print("kinds", kinds)
print("seen", Named.seen)
