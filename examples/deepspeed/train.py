"""Trains a small network on made-up data with DeepSpeed. It knows nothing of gputune. To run it as it is:

    pip install deepspeed
    deepspeed --num_gpus 1 train.py --deepspeed_config ds_config.json
"""

import argparse

import deepspeed
import torch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument("--epochs", type=int, default=1000, help="times that all data is used")
    arguments = deepspeed.add_config_arguments(parser).parse_args()
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
    points = torch.randn(100_000, 64)
    data = torch.utils.data.TensorDataset(points, points.sum(1, keepdim=True))
    engine, _, loader, _ = deepspeed.initialize(
        args=arguments, model=model, model_parameters=model.parameters(), training_data=data
    )
    for _ in range(arguments.epochs):
        for inputs, wanted in loader:
            inputs, wanted = inputs.to(engine.device), wanted.to(engine.device)
            engine.backward(torch.nn.functional.mse_loss(engine(inputs), wanted))
            engine.step()


if __name__ == "__main__":
    main()
