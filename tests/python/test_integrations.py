"""Tests of the callbacks of `gputune.integrations` with the real frameworks, in a probe without the hook."""

from __future__ import annotations

import importlib.util
import unittest

from test_client import Probe, run


def needs(*modules):
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    return unittest.skipIf(missing, f"not installed: {', '.join(missing)}")


class Callbacks(unittest.TestCase):
    def steps(self, script):
        """The samples and the losses of the reported steps."""
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "PYTHONWARNINGS": "ignore"}
        with Probe() as probe:
            run(script, probe.environment(**quiet), timeout=600)
            steps = [event for events in probe.events() for event in events if event["event"] == "step"]
        return [(step["samples"], step.get("loss")) for step in steps]

    # The weights of the torch models are 1, and training does not change them: the loss of each sample is (1 + 1)² = 4.

    @needs("torch", "lightning")
    def test_lightning(self):
        script = """
            import torch, lightning
            from gputune.integrations.lightning import GputuneCallback

            class Model(lightning.LightningModule):
                def __init__(self):
                    super().__init__()
                    self.layer = torch.nn.Linear(2, 1, bias=False)
                    torch.nn.init.ones_(self.layer.weight)
                def training_step(self, batch):
                    return self.layer(batch["x"]).pow(2).mean()
                def configure_optimizers(self):
                    return torch.optim.SGD(self.parameters(), 0.0)

            data = torch.utils.data.DataLoader([{"x": torch.ones(2)} for _ in range(18)], batch_size=4)
            lightning.Trainer(
                max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                accumulate_grad_batches=2, callbacks=[GputuneCallback()],
            ).fit(Model(), data)
        """
        self.assertEqual(self.steps(script), [(8, 4.0), (8, 4.0), (2, 4.0)])

    @needs("torch", "transformers", "accelerate")
    def test_transformers(self):
        script = """
            import tempfile, torch
            from transformers import Trainer, TrainingArguments
            from gputune.integrations.transformers import GputuneCallback

            class Model(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.layer = torch.nn.Linear(2, 1, bias=False)
                    torch.nn.init.ones_(self.layer.weight)
                def forward(self, x):
                    return {"loss": self.layer(x).pow(2).mean()}

            arguments = TrainingArguments(
                tempfile.mkdtemp(), per_device_train_batch_size=4, gradient_accumulation_steps=2, max_steps=3, learning_rate=0.0,
                use_cpu=True, report_to=[], logging_steps=1, save_strategy="no", disable_tqdm=True,
            )
            data = [{"x": torch.ones(2)} for _ in range(64)]
            Trainer(Model(), arguments, train_dataset=data, callbacks=[GputuneCallback()]).train()
        """
        self.assertEqual(self.steps(script), [(8, None), (8, 4.0), (8, 4.0)])

    @needs("torch", "accelerate")
    def test_accelerate(self):
        script = """
            import torch, accelerate
            from gputune.integrations.accelerate import GputuneCallback

            accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
            model = torch.nn.Linear(2, 1, bias=False)
            torch.nn.init.ones_(model.weight)
            loader = torch.utils.data.DataLoader(torch.ones(18, 2), batch_size=4)
            model, loader, optimizer = accelerator.prepare(model, loader, torch.optim.SGD(model.parameters(), 0.0))
            steps = GputuneCallback(accelerator)
            for batch in loader:
                with accelerator.accumulate(model):
                    loss = model(batch).pow(2).mean()
                    accelerator.backward(loss)
                    optimizer.step()
                    optimizer.zero_grad()
                steps.on_batch_end(batch, loss)
        """
        self.assertEqual(self.steps(script), [(8, 4.0), (8, 4.0), (2, 4.0)])

    @needs("keras", "tensorflow")
    def test_keras(self):
        script = """
            import keras, numpy
            from gputune.integrations.keras import GputuneCallback

            model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
            model.compile("sgd", "mse", steps_per_execution=2)
            x, y = numpy.ones((16, 2)), numpy.ones((16, 1))
            model.fit(x, y, batch_size=4, epochs=2, verbose=0, callbacks=[GputuneCallback(4)])
        """
        steps = self.steps(script)
        self.assertEqual([samples for samples, _ in steps], [8, 8, 8, 8])
        self.assertTrue(all(loss >= 0 for _, loss in steps), steps)


if __name__ == "__main__":
    unittest.main()
