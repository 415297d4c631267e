"""Reads a configuration file with its framework, and checks the settings: the config of tests/support/kept.rs.

Arguments: the kind of the file, its path.
"""

import json
import sys

kind, path = sys.argv[1:]

if kind == "huggingface":
    from transformers import HfArgumentParser, TrainingArguments

    # Without a GPU, TrainingArguments accepts bf16 only with `use_cpu`.
    with open(path) as file:
        config = {**json.load(file), "use_cpu": True}
    with open(path, "w") as file:
        json.dump(config, file)
    (arguments,) = HfArgumentParser((TrainingArguments,)).parse_json_file(path)
    assert arguments.per_device_train_batch_size == 256
    assert arguments.dataloader_num_workers == 4
    assert arguments.dataloader_prefetch_factor == 2
    assert config["dataloader_pin_memory"] is True  # TrainingArguments turns it off on a CPU, so this reads the file
    assert arguments.bf16 is True and arguments.fp16 is False
elif kind == "lightning":
    from lightning import LightningDataModule, Trainer
    from lightning.pytorch.cli import LightningCLI
    from lightning.pytorch.demos.boring_classes import BoringModel

    class Data(LightningDataModule):
        def __init__(
            self, batch_size: int = 1, num_workers: int = 0, prefetch_factor: int = 2, pin_memory: bool = False
        ) -> None:
            super().__init__()
            self.save_hyperparameters()

    sys.argv[1:] = ["--config", path, "--trainer.logger", "false", "--trainer.accelerator", "cpu"]
    cli = LightningCLI(BoringModel, Data, run=False, save_config_callback=None)
    for name, value in dict(batch_size=256, num_workers=4, prefetch_factor=2, pin_memory=True).items():
        assert cli.datamodule.hparams[name] == value, cli.datamodule.hparams
    assert cli.trainer.precision == "bf16-mixed", cli.trainer.precision
    assert isinstance(cli.trainer, Trainer)
elif kind == "accelerate":
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser

    config = load_config_from_file(path)
    assert config.mixed_precision == "bf16" and config.num_processes == 1, config
    arguments = launch_command_parser().parse_args(["--config_file", path, "train.py"])
    arguments, defaults, _ = _validate_launch_command(arguments)
    assert arguments.mixed_precision == "bf16", arguments
elif kind == "deepspeed":
    with open(path) as file:
        config = json.load(file)
    assert config["train_micro_batch_size_per_gpu"] == 256, config
    from accelerate.utils.deepspeed import HfDeepSpeedConfig

    assert HfDeepSpeedConfig(config).get_value("bf16.enabled") is True
    try:
        from deepspeed.runtime.config import DeepSpeedConfig
    except ImportError:
        print("deepspeed is not installed: its configuration is read by accelerate alone")
    else:
        read = DeepSpeedConfig(path)
        assert read.train_micro_batch_size_per_gpu == 256
        assert read.bfloat16_config.enabled is True and read.float16_config.enabled is False
else:
    raise SystemExit(f"no framework is called {kind}")
