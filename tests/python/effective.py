"""Runs a script until its training would begin, and prints its settings as JSON, with the names of `gputune init`."""

import json
import os
import runpy
import sys
from unittest import mock

import torch
from torch.utils.data import DataLoader

PRECISIONS = {"bf16-mixed": "bf16", "32-true": "fp32", "bf16": "bf16", "no": "fp32"}
seen = {}


class Enough(BaseException):
    """Raised at the place where training would begin."""


def around_init(original):
    def init(self, *args, **kwargs):
        original(self, *args, **kwargs)
        # The first loader that shuffles is the training loader.
        if "batch_size" not in seen and isinstance(self.sampler, torch.utils.data.RandomSampler):
            seen.update(batch_size=self.batch_size, workers=self.num_workers)
            if self.num_workers:
                seen.update(prefetch=self.prefetch_factor, persistent_workers=self.persistent_workers)

    return init


def stop(*_, **__):
    raise Enough


def of_autocast(_, device_type, dtype=None, enabled=True, **__):
    seen["precision"] = {torch.bfloat16: "bf16", torch.float16: "fp16"}[dtype] if enabled else "fp32"
    raise Enough


def of_lightning(trainer, *_, **__):
    seen["precision"] = PRECISIONS[trainer.precision]
    raise Enough


def of_transformers(trainer, *_, **__):
    seen["precision"] = "bf16" if trainer.args.bf16 else "fp16" if trainer.args.fp16 else "fp32"
    trainer.get_train_dataloader()
    raise Enough


def of_accelerate(accelerator, *_, **__):
    seen["precision"] = PRECISIONS[accelerator.mixed_precision]
    raise Enough


def replaced(text):
    yield DataLoader, "__init__", around_init(DataLoader.__init__)
    if "torch.autocast(" in text:
        yield torch.autocast, "__init__", of_autocast  # runs in the first step, after the first batch
    else:
        yield DataLoader, "__iter__", stop
    if "import lightning" in text:
        import lightning

        yield lightning.Trainer, "fit", of_lightning
    if "from transformers" in text:
        import transformers

        yield transformers.Trainer, "train", of_transformers
    if "from accelerate" in text:
        import accelerate

        yield accelerate.Accelerator, "prepare", of_accelerate


def main():
    sys.argv = sys.argv[1:]
    script = os.path.abspath(sys.argv[0])
    sys.path.insert(0, os.path.dirname(script))
    for owner, name, other in replaced(open(script, encoding="utf-8").read()):
        mock.patch.object(owner, name, other).start()
    try:
        runpy.run_path(script, run_name="__main__")
    except Enough:
        pass
    if "OMP_NUM_THREADS" in os.environ:
        seen["threads"] = int(os.environ["OMP_NUM_THREADS"])
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
