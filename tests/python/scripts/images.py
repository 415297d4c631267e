"""Trains on images as public scripts do: transforms in workers, and an evaluation after each epoch.

Variables of the environment:

- EPOCHS, STEPS (of an epoch), WORKERS
- LOAD: milliseconds to load a batch. STEP: milliseconds of a step on the device.
- DRY_RUN: tries the model on the CPU with a batch, before the model is moved to the device
- PREFETCH: copies batches in a separate stream. THREAD: loads batches in a thread.
- FUNCTION: trains a function instead of a module
- VISIBLE: the value of CUDA_VISIBLE_DEVICES, which is set after torch is imported
- TORCHVISION: uses the transforms of torchvision
- FORK: a forked child uses the device before this process does
- ADAM: trains with Adam instead of SGD. SEVERAL: the head has two layers.
"""

import os
import queue
import statistics
import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DEVICE = os.environ.get("DEVICE", "cpu")
LOAD = float(os.environ.get("LOAD", "0")) / 1e3
STEP = float(os.environ.get("STEP", "0"))
WORKERS = int(os.environ.get("WORKERS", "2"))
BATCH = 8


def to_tensor(picture):
    """Like `ToTensor` of torchvision: bytes become numbers from 0 to 1, channels first."""
    return picture.permute(2, 0, 1).contiguous().to(dtype=torch.float32).div(255)


def normalize(tensor):
    mean = torch.tensor([0.485, 0.456, 0.406]).to(tensor.device, tensor.dtype)
    return (tensor - mean[:, None, None]) / 0.225


def prepare(picture):
    return normalize(to_tensor(picture))


if "TORCHVISION" in os.environ:
    from torchvision import transforms, tv_tensors
    from torchvision.transforms import v2

    MEAN, DEVIATION = [0.485, 0.456, 0.406], [0.225] * 3
    old = transforms.Compose([transforms.ToTensor(), transforms.Normalize(MEAN, DEVIATION)])
    new = v2.Compose([v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, DEVIATION)])

    def prepare(picture):  # compares both generations of torchvision's transforms
        image = new(tv_tensors.Image(picture.permute(2, 0, 1)))
        assert type(image) is tv_tensors.Image
        torch.testing.assert_close(old(picture.numpy()), image.as_subclass(torch.Tensor))
        return image


class Pictures(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(LOAD / BATCH)
        picture = torch.full((8, 8, 3), index % 256, dtype=torch.uint8)
        return prepare(picture), torch.tensor(index % 4)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten())
        self.head = nn.Sequential(nn.Linear(512, 16), nn.Linear(16, 4)) if os.environ.get("SEVERAL") else nn.Linear(512, 4)
        self.seen = set()

    def forward(self, images):
        if STEP and self.training and images.device.type != "cpu":
            torch.cuda._sleep(int(STEP * 1e6))
        hidden = self.layers(images)
        self.seen.add(f"{hidden.device.type} {hidden.dtype}")
        return self.head(hidden)


class Prefetcher:
    """Copies the next batch in a separate stream, while the script computes with the current batch."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        stream = torch.cuda.Stream()
        ready = None
        for batch in self.loader:
            with torch.cuda.stream(stream):
                copied = [tensor.to(DEVICE, non_blocking=True) for tensor in batch]
                torch.cuda._sleep(int(STEP * 3e6))  # slower than a step
                copied = [tensor.float() if tensor.is_floating_point() else tensor for tensor in copied]
            if ready is not None:
                yield ready
            ready = copied
        torch.cuda.current_stream().wait_stream(stream)
        yield ready


class Loading:
    """Loads batches in a thread, at most two ahead, as prefetch_generator and many in-house loaders do."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        loaded = queue.Queue(2)

        def load():
            for batch in self.loader:
                loaded.put(batch)
            loaded.put(None)

        self.thread = threading.Thread(target=load, daemon=True)
        self.thread.start()
        return iter(loaded.get, None)


def fork_a_child():
    child = os.fork()
    if child == 0:
        try:
            print("child", torch.ones(2, device=DEVICE).sum().item(), flush=True)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def main():
    if "FORK" in os.environ:
        fork_a_child()
    if "VISIBLE" in os.environ:
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["VISIBLE"]
        print("devices", torch.cuda.device_count(), flush=True)
    torch.manual_seed(1)
    steps = int(os.environ.get("STEPS", "12"))
    loader = DataLoader(Pictures(BATCH * steps), BATCH, shuffle=True, num_workers=WORKERS)
    test_loader = DataLoader(Pictures(BATCH * 2), BATCH, num_workers=WORKERS)
    batches = Prefetcher(loader) if "PREFETCH" in os.environ else Loading(loader) if "THREAD" in os.environ else loader
    model = Net()
    if "DRY_RUN" in os.environ:
        model(next(iter(test_loader))[0])
    model.to(DEVICE)
    model.seen.clear()
    kind, rate = (torch.optim.Adam, 0.001) if "ADAM" in os.environ else (torch.optim.SGD, 0.01)
    optimizer = kind(model.parameters(), lr=rate)
    began = [time.perf_counter()]
    for epoch in range(int(os.environ.get("EPOCHS", "2"))):
        model.train()
        for images, labels in batches:
            images, labels = images.to(DEVICE, non_blocking=True), labels.to(DEVICE, non_blocking=True)
            if "FUNCTION" in os.environ:
                outputs = images.mean((1, 2, 3))[:, None] * model.head.bias
            else:
                outputs = model(images)
            loss = nn.functional.cross_entropy(outputs.float(), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            began.append(time.perf_counter())
        if isinstance(batches, Loading):
            batches.thread.join()
        model.eval()
        with torch.no_grad():
            right = sum(int((model(images.to(DEVICE)).argmax(1).cpu() == labels).sum()) for images, labels in test_loader)
        print("epoch", epoch, "right", right)
    print("seen", sorted(model.seen))
    states = {str(state["exp_avg"].dtype) for state in optimizer.state.values() if "exp_avg" in state}
    print("weights", next(model.parameters()).dtype, "state", *states, "outputs", outputs.dtype)
    print("layers", sorted(type(part).__name__ for part in model.modules() if isinstance(part, nn.Linear)))
    print("tf32", torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
    # The median, because a busy machine may pause for seconds.
    took = statistics.median(after - before for before, after in zip(began, began[1:]))
    print("milliseconds a step", round(1e3 * took, 1))
    print("events", getattr(torch.cuda.Event, "made", 0), "recorded", getattr(torch.cuda.Event, "recorded", 0))


if __name__ == "__main__":
    main()
