"""Trains with `fit` of Keras on 100 samples.

DATA is `arrays`, `usual` (arrays with the default batch size and a validation split), `generator`, `dataset` (a PyDataset) or
`tf` (a tf.data.Dataset). All but `usual` have batches of 16. POLICY is a precision policy, EPOCHS the number of epochs.
"""

import os
import random

import numpy
import keras

data = os.environ.get("DATA", "arrays")
epochs = int(os.environ.get("EPOCHS", "3"))
x, y = numpy.random.rand(100, 8).astype("float32"), numpy.random.rand(100, 1).astype("float32")
print("first", random.random(), flush=True)


class Own(keras.utils.PyDataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return x[16 * index : 16 * (index + 1)], y[16 * index : 16 * (index + 1)]


def batches():
    while True:
        for begin in range(0, 100, 16):
            yield x[begin : begin + 16], y[begin : begin + 16]


if os.environ.get("POLICY"):
    keras.mixed_precision.set_global_policy(os.environ["POLICY"])
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
if data == "arrays":
    history = model.fit(x, y, 16, epochs=epochs, verbose=0, validation_data=(x[:20], y[:20]))
elif data == "usual":
    history = model.fit([x], y, epochs=epochs, verbose=0, validation_split=0.2, callbacks=keras.callbacks.TerminateOnNaN())
elif data == "generator":
    history = model.fit(batches(), steps_per_epoch=7, epochs=epochs, verbose=0)
elif data == "dataset":
    history = model.fit(Own(), epochs=epochs, verbose=0)
elif data == "tf":
    import tensorflow

    pairs = tensorflow.data.Dataset.from_tensor_slices((x, y)).shuffle(100).batch(16).prefetch(2)
    history = model.fit(pairs, epochs=epochs, verbose=0)
print("ended", len(history.epoch), flush=True)
