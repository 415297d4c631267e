"""Tests of the hook for `model.fit` of Keras 3 on JAX, and on TensorFlow if it is installed."""

import importlib.util
import json
import unittest

import harness

MISSING = [name for name in ("keras", "jax") if importlib.util.find_spec(name) is None]

ALL = {
    "keras.batch_size": 40,
    "keras.steps_per_execution": 2,
    "keras.jit_compile": False,
    "keras.mixed_precision": "mixed_bfloat16",
}


def run(apply=None, backend="jax", stop_after=None, experiment=None, **env):
    env.update(KERAS_BACKEND=backend, TF_CPP_MIN_LOG_LEVEL="3")
    return harness.run("keras_fit.py", apply, stop_after=stop_after, env=env, experiment=experiment)


def samples(result):
    """The samples of the steps in ascending order: with JAX, Keras calls callbacks in several threads, in any order."""
    return sorted(step.get("samples") for step in result.steps)


@harness.on_the_cpu
class Fit(unittest.TestCase):
    """Runs the script keras_fit.py."""

    def setUp(self):
        if MISSING:
            harness.skip_loudly(self, f"{' and '.join(MISSING)} not installed")

    def test_each_batch_of_arrays_is_a_step(self):
        result = run()
        self.assertEqual((result.code, result.errors), (0, []), result.output)
        self.assertEqual(samples(result), [4] * 3 + [16] * 18)
        self.assertEqual(len(result.losses), 21)
        times = [step["time"] for step in result.steps]
        self.assertEqual(times, sorted(times))
        self.assertEqual(result.marks, ["evaluation", "epoch"] * 2)
        facts = result.facts
        self.assertEqual((facts["keras.backend"], facts["precision"], facts["optimizer"]), ("jax", "fp32", "Adam"))
        self.assertEqual((facts["loader.batch_size"], facts["samples.counted_by"]), (16, "batch size"))
        self.assertEqual((facts["keras.steps_per_execution"], facts["keras.jit_compile"]), (1, True))
        self.assertIn("first 0.844", result.output, "random is seeded")

    def test_fit_makes_batches_of_32_of_what_validation_leaves(self):
        result = run(DATA="usual", EPOCHS="2")
        self.assertEqual((result.code, samples(result)), (0, [16] * 2 + [32] * 4), result.output)
        facts = result.facts
        self.assertEqual((facts["loader.batch_size"], facts["loader.samples"], facts["run.epochs"]), (32, 80, 2))

    def test_all_targets_are_set_whatever_the_script_sets(self):
        result = run(ALL, POLICY="float32")
        self.assertEqual((result.code, result.errors, result.applied), (0, [], set(ALL)), result.output)
        self.assertEqual(samples(result), [20] * 3 + [80] * 3)
        facts = result.facts
        self.assertEqual((facts["loader.batch_size"], facts["precision"]), (40, "bf16"))
        self.assertEqual((facts["keras.steps_per_execution"], facts["keras.jit_compile"]), (2, False))

    def test_the_batches_of_a_generator_are_counted_and_stay(self):
        result = run({"keras.batch_size": 40, "keras.steps_per_execution": 7}, DATA="generator")
        self.assertEqual((result.code, samples(result), result.applied), (0, [100] * 3, {"keras.steps_per_execution"}))
        self.assertEqual([kind for kind, _ in result.errors], ["not_applied"])
        self.assertIn("model.fit gets its batches from a generator", result.errors[0][1])
        self.assertEqual(result.facts["samples.counted_by"], "leading dimension of the batch")

    def test_a_dataset_of_the_script_is_counted_by_its_first_batch(self):
        self.assertEqual(samples(run(DATA="dataset")), [16] * 18)

    def test_other_targets_are_rejected_and_gputune_ends_the_run(self):
        result = run({"keras.batch_size": 50, "dataloader.num_workers": 2}, stop_after=10, EPOCHS="1000000")
        self.assertEqual((result.code, result.applied), (0, {"keras.batch_size"}), result.output)
        self.assertNotIn("ended", result.output)
        self.assertIn("num_workers (dataloader.num_workers) found nothing", result.errors[0][1])

    def test_the_first_run_notes_the_trainer(self):
        result = run(experiment={"mode": "first_run"})
        name = next(name for name in result.files if name.startswith("first-run-"))
        notes = [json.loads(line) for line in result.files[name].decode().splitlines()]
        for note in ({"trainer": "keras-fit"}, {"sized": True}, {"samples": 16}):
            self.assertIn(note, notes)

    def test_other_experiments_are_rejected(self):
        result = run(experiment={"mode": "replay"}, EPOCHS="1")
        self.assertEqual([kind for kind, _ in result.errors], ["rejected"])

    def test_tensorflow_counts_and_takes_the_same(self):
        if importlib.util.find_spec("tensorflow") is None:
            harness.skip_loudly(self, "tensorflow is not installed")
        result = run(ALL, backend="tensorflow")
        self.assertEqual((result.code, result.errors, result.applied), (0, [], set(ALL)), result.output)
        self.assertEqual((samples(result), result.facts["keras.backend"]), ([20] * 3 + [80] * 3, "tensorflow"))
        result = run({"keras.batch_size": 40, "keras.steps_per_execution": 2}, backend="tensorflow", DATA="tf")
        self.assertEqual((samples(result)[:2], result.facts["loader.batch_size"]), ([32, 32], 16), result.output)
        self.assertIn("from a tf.data.Dataset", result.errors[0][1])


if __name__ == "__main__":
    unittest.main()
