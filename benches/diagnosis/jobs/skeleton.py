"""A plain PyTorch training script with places for what is wrong in it."""

from __future__ import annotations

from dataclasses import dataclass, field

from models import Model
from text import Marked, indented, without_marks

TEMPLATE = '''"""{about}"""

{imports}

{constants}


{helpers}class {dataset}(Dataset):
    def __init__(self, length):
        generator = torch.Generator().manual_seed({seed})
        self.inputs = {inputs}
        self.labels = torch.randint(CLASSES, (length,), generator=generator)
{init}

    def __len__(self):
        return len(self.labels)

{methods}


{model}{functions}def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--max-steps", type=int, default=1_000_000)
    parser.add_argument("--lr", type=float, default={lr})
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed({seed})
{begin}
    model = {make}
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.{optimizer}(model.parameters(), lr=args.lr)
    dataset = {dataset}({length})
    loader = DataLoader(dataset, {batches}{loader})
{setup}
    step, epoch = 0, 0
    while step < args.max_steps:
        for {unpack} in loader:
{before}
            outputs = model({batch_inputs})
            loss = criterion(outputs, labels)
{backward}
            step += 1
{after}
            if step % LOG_EVERY == 0{who_prints}:
                print(f"epoch {{epoch}}  step {{step}}  loss {{loss.item():.4f}}", flush=True)
            if step >= args.max_steps:
                break
        epoch += 1
{epoch}
{end}


if __name__ == "__main__":
    main()
'''
CALL_MAIN = '''

if __name__ == "__main__":
    main()
'''

FETCH = """
def __getitem__(self, index):
    return self.inputs[index], self.labels[index]
"""
STEP = ["optimizer.zero_grad()", "loss.backward()", "optimizer.step()"]


@dataclass
class Parts:
    """What diseases write into a script."""

    model: Model
    seed: int
    batch: int
    workers: int
    steps_per_epoch: int = 0  # 0: long epochs
    dataset: str = "Samples"
    about: str = "Trains a classifier."
    lr: str = "1e-3"
    optimizer: str = "SGD"
    batch_inputs: str = "inputs"
    unpack: str = "inputs, labels"
    inputs: str = ""
    batches: str = "batch_size=BATCH_SIZE, shuffle=True, drop_last=True"
    is_persistent: bool = True
    is_distributed: bool = False
    has_main: bool = True
    imports: set[str] = field(default_factory=set)
    from_imports: set[str] = field(default_factory=set)
    data_imports: set[str] = field(default_factory=set)  # of torch.utils.data
    constants: list[str] = field(default_factory=list)
    helpers: list[str] = field(default_factory=list)
    init: list[str] = field(default_factory=list)
    methods: str = FETCH
    loader: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    begin: list[str] = field(default_factory=list)
    wrap: str = ""
    setup: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    backward: list[str] = field(default_factory=lambda: list(STEP))
    after: list[str] = field(default_factory=list)
    epoch: list[str] = field(default_factory=list)
    end: list[str] = field(default_factory=list)

    def length(self) -> int:
        return self.batch * self.steps_per_epoch if self.steps_per_epoch else 8192

    def script(self) -> Marked:
        model = self.model
        make = self.wrap.format(model.make) if self.wrap else model.make
        template = TEMPLATE if self.has_main else TEMPLATE.replace(CALL_MAIN, "").replace("def main():", 'if __name__ == "__main__":')
        return without_marks(template.format(
            about=self.about, imports=self._imports(), constants="\n".join(self._constants()), helpers=blocks(self.helpers),
            dataset=self.dataset, inputs=self.inputs or model.inputs, seed=self.seed, init=indented(self.init, 2),
            methods=indented([self.methods], 1), model=model.code.strip("\n") + "\n\n\n", functions=blocks(self.functions),
            lr=self.lr, begin=indented(self.begin, 1), make=make, optimizer=self.optimizer, length=self.length(), batches=self.batches,
            loader="".join(f", {option}" for option in self._loader()), setup=indented(self.setup, 1),
            unpack=self.unpack, before=indented(self.before, 3), batch_inputs=self.batch_inputs, backward=indented(self.backward, 3),
            after=indented(self.after, 3), who_prints=" and rank == 0" if self.is_distributed else "",
            epoch=indented(self.epoch, 2), end=indented(self.end, 1)))

    def _imports(self) -> str:
        plain = "\n".join(f"import {name}" for name in sorted(self.imports | {"argparse"}))
        ours = {name for name in self.from_imports if not name.startswith("from torch")}
        data = sorted({"DataLoader", "Dataset"} | self.data_imports)
        froms = sorted((self.from_imports - ours) | {"from torch import nn", f"from torch.utils.data import {', '.join(data)}"})
        return "\n".join([plain, *sorted(ours), "", "import torch", *froms])

    def _constants(self) -> list[str]:
        return ["CLASSES = 10", f"BATCH_SIZE = {self.batch}", "LOG_EVERY = 10", *self.model.constants, *self.constants]

    def _loader(self) -> list[str]:
        workers = [f"num_workers={self.workers}"] if self.workers else []
        if self.workers and self.is_persistent:
            workers.append("persistent_workers=True")
        return [*workers, *self.loader]


def blocks(texts: list[str]) -> str:
    return "".join(text.strip("\n") + "\n\n\n" for text in texts)
