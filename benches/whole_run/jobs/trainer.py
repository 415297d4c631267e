"""The Trainer of transformers, with an evaluation after each epoch."""

import argparse
import tempfile

import torch
from data import CLASSES, Pictures, network
from transformers import Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--epochs", type=int, default=16)
args = parser.parse_args()


class Model(torch.nn.Module):
    """Returns the loss and the scores, as the Trainer expects."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def forward(self, pictures, labels):
        scores = self.network(pictures)
        return {"loss": torch.nn.functional.cross_entropy(scores.view(-1, CLASSES), labels), "logits": scores}


def collate(rows):
    return {"pictures": torch.stack([row[0] for row in rows]), "labels": torch.tensor([row[1] for row in rows])}


with tempfile.TemporaryDirectory() as folder:
    Trainer(
        Model(),
        TrainingArguments(
            folder,
            num_train_epochs=args.epochs,
            per_device_train_batch_size=args.batch_size,
            dataloader_num_workers=args.workers,
            eval_strategy="epoch",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        ),
        train_dataset=Pictures(2500),
        eval_dataset=Pictures(1500),
        data_collator=collate,
    ).train()
