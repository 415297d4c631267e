"""The arguments of Transformers' example scripts: HfArgumentParser with TrainingArguments."""

from dataclasses import dataclass

from transformers import HfArgumentParser, TrainingArguments


@dataclass
class DataArguments:
    train_file: str = "train.txt"


HfArgumentParser((DataArguments, TrainingArguments)).parse_args_into_dataclasses()
