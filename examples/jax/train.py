"""Trains a small network on synthetic data with JAX, and says so to gputune. Nothing is downloaded.

A few lines are there for gputune (they are marked); without it they do nothing, and the script runs as ever:

    pip install gputune jax optax
    python3 train.py
"""

import gputune  # 1
import jax
import jax.numpy as jnp
import numpy as np
import optax

FEATURES, HIDDEN, CLASSES = 256, 512, 10
STEPS = 20_000


def batches(batch_size):
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(CLASSES, FEATURES))
    while True:
        labels = rng.integers(CLASSES, size=batch_size)
        yield (centres[labels] + 3 * rng.normal(size=(batch_size, FEATURES))).astype(np.float32), labels


def initial_weights(key):
    sizes = [FEATURES, HIDDEN, HIDDEN, CLASSES]
    keys = jax.random.split(key, len(sizes))
    return [
        {"w": jax.random.normal(key, (inputs, outputs)) / np.sqrt(inputs), "b": jnp.zeros(outputs)}
        for key, inputs, outputs in zip(keys, sizes, sizes[1:])
    ]


def loss_of(weights, inputs, labels, dtype):
    *hidden, last = jax.tree.map(lambda array: array.astype(dtype), weights)
    signal = inputs.astype(dtype)
    for layer in hidden:
        signal = jax.nn.relu(signal @ layer["w"] + layer["b"])
    logits = (signal @ last["w"] + last["b"]).astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def main():
    config = gputune.config(batch_size=64, precision="float32")  # 2: these values, unless a probe tries others
    dtype = jnp.dtype(config["precision"])
    optimizer = optax.adam(1e-3)
    weights = initial_weights(jax.random.key(0))
    state = optimizer.init(weights)

    @jax.jit
    def train_step(weights, state, inputs, labels):
        loss, gradients = jax.value_and_grad(loss_of)(weights, inputs, labels, dtype)
        updates, state = optimizer.update(gradients, state)
        return optax.apply_updates(weights, updates), state, loss

    data = batches(config["batch_size"])
    for step in range(STEPS):
        with gputune.phase("data"):  # optional: how long the step waits for its data
            inputs, labels = next(data)
        weights, state, loss = train_step(weights, state, inputs, labels)
        # 3. JAX runs ahead of Python; float(loss) waits until the step is over.
        gputune.step(samples=len(labels), loss=float(loss))
        if step % 500 == 0:
            print(f"step {step}  loss {loss:.3f}")


if __name__ == "__main__":
    main()
