"""Trains a small GPT-2 from scratch with the Trainer of Hugging Face Transformers. Nothing is downloaded.

The weights are random and so is the text, so it says nothing about language, but a step does what a step of such a script
does. It knows nothing of gputune; gputune.toml beside it says how it is tuned. To run it as it is:

    pip install torch transformers accelerate
    python3 train.py
"""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import (
    DataCollatorForLanguageModeling,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

WORDS = 500
LENGTH = 64


class Sentences(Dataset):
    """Sequences in which each word follows from the one before, and from chance."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        rng = torch.Generator().manual_seed(index)
        jumps = torch.randint(1, 4, (LENGTH,), generator=rng)
        return {"input_ids": (jumps.cumsum(0) * 7) % (WORDS - 1) + 1}


def build_tokenizer():
    words = {"<pad>": 0, **{f"w{index}": index for index in range(1, WORDS)}}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words, unk_token="<pad>")), pad_token="<pad>")


def main():
    config = GPT2Config(
        vocab_size=WORDS, n_positions=LENGTH, n_embd=64, n_layer=2, n_head=4, bos_token_id=None, eos_token_id=None
    )
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=8,
        per_device_eval_batch_size=16,
        max_steps=5000,
        learning_rate=1e-3,
        logging_steps=100,
        eval_strategy="steps",
        eval_steps=1000,
        save_strategy="no",
        report_to="none",
        seed=0,
    )
    trainer = Trainer(
        model=GPT2LMHeadModel(config),
        args=arguments,
        train_dataset=Sentences(100_000),
        eval_dataset=Sentences(160),
        data_collator=DataCollatorForLanguageModeling(build_tokenizer(), mlm=False),
    )
    trainer.train()


if __name__ == "__main__":
    main()
