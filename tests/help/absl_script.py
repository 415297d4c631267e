"""Flags by absl, as many JAX and TensorFlow scripts have them."""

from absl import app, flags

flags.DEFINE_integer("batch_size", 128, "Samples of a step.")
flags.DEFINE_enum("dtype", "float32", ["float32", "bfloat16"], "What is computed in.")
flags.DEFINE_bool("jit", True, "Compile.")
flags.DEFINE_integer("num_workers", 0, "Processes that load.", lower_bound=0)
app.run(lambda _: None)
