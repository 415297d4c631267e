"""The parts of examples/huggingface for loadtune's adapter, which trains them in its own loop, without the Trainer."""

import train
from loadtune import from_hf_trainer
from transformers import DataCollatorForLanguageModeling, GPT2Config, GPT2LMHeadModel


def get_workload():
    config = GPT2Config(
        vocab_size=train.WORDS,
        n_positions=train.LENGTH,
        n_embd=64,
        n_layer=2,
        n_head=4,
        bos_token_id=None,
        eos_token_id=None,
    )
    collator = DataCollatorForLanguageModeling(train.build_tokenizer(), mlm=False)
    return from_hf_trainer(GPT2LMHeadModel(config), train.Sentences(100_000), data_collator=collator)
