"""Trains a small CNN on synthetic pictures with Keras on TensorFlow, and says so to gputune. Nothing is downloaded.

Three lines are there for gputune (they are marked); without it they do nothing, and the script runs as ever:

    pip install gputune tensorflow
    python3 train.py
"""

import gputune  # 1
import keras
import tensorflow as tf

CLASSES = 10
SIZE = 24

# 2: these values, unless a probe tries others
CONFIG = gputune.config(batch_size=32, parallel_calls=1, prefetch=0, precision="float32")


class Report(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        gputune.step(samples=CONFIG["batch_size"], loss=logs["loss"])  # 3: the loss was waited for, so the step is over


def build_data(length):
    patterns = tf.random.stateless_normal([CLASSES, SIZE, SIZE, 3], seed=[0, 0])

    def draw(index):
        noise = tf.random.stateless_normal([SIZE, SIZE, 3], seed=[1, index], stddev=2.0)
        picture = tf.image.random_flip_left_right(tf.gather(patterns, index % CLASSES) + noise)
        return tf.image.random_brightness(picture, 0.1), index % CLASSES

    data = tf.data.Dataset.range(length, output_type=tf.int32).shuffle(1000, seed=0)
    data = data.map(draw, num_parallel_calls=CONFIG["parallel_calls"])
    data = data.batch(CONFIG["batch_size"], drop_remainder=True)
    return data.prefetch(CONFIG["prefetch"]) if CONFIG["prefetch"] > 0 else data


def build_model():
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((SIZE, SIZE, 3)),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(CLASSES, dtype="float32"),
        ]
    )


def main():
    keras.utils.set_random_seed(0)
    keras.mixed_precision.set_global_policy(CONFIG["precision"])
    model = build_model()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
    model.fit(build_data(16000), epochs=10, verbose=2, callbacks=[Report()])


if __name__ == "__main__":
    main()
