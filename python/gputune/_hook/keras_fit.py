"""Applies settings to Keras's `model.fit`, and reports its steps, if Keras computes with JAX or TensorFlow.

With its torch back end Keras trains through torch, so the torch hook applies and reports. Nothing here imports torch.
"""

from __future__ import annotations

import functools
import inspect
import random
import sys
import threading
import time
from types import ModuleType
from typing import Any, Callable

from gputune import _client
from gputune._client import Reporter
from gputune._hook import importing
from gputune._hook.experiment import FIRST_RUN, OBSERVE
from gputune._hook.facts import Facts
from gputune._hook.first_run import FIRST
from gputune._hook.import_times import TIMES
from gputune._hook.keras_batches import Batches
from gputune._hook.session import Session, UnmeasuredSession
from gputune._hook.stopping import Stopping

Function = Callable[..., Any]

BATCH_SIZE = "keras.batch_size"
STEPS = "keras.steps_per_execution"
JIT = "keras.jit_compile"
PRECISION = "keras.mixed_precision"

#: The trainer that the first run notes for scripts with `model.fit`. The torch hook notes `keras` if Keras trains
#: through torch.
TRAINER = "keras-fit"

#: Modules with functions that set the policy of the precision, then the same modules of `tf.keras`.
_OF_POLICIES: tuple[str, ...] = ("keras.mixed_precision", "keras.config")
_OF_POLICIES += tuple(name.replace("keras.", "keras._tf_keras.keras.", 1) for name in _OF_POLICIES)
_DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


class KerasFit:
    """Watches the calls of `compile` and `fit` in this process."""

    def __init__(self, keras: Any, probe: dict[str, Any]) -> None:
        self._keras = keras
        self._backend: str = keras.backend.backend()
        self._is_measured = probe["socket"] is not None
        self._session = Session(probe) if self._is_measured else UnmeasuredSession(probe)
        self._facts = Facts(self._session)
        self._stopping = Stopping()
        self._stopping.flush = self._session.flush
        self._lock = threading.RLock()  # on JAX, Keras calls callbacks in other threads
        self._has_begun = False
        self._marks: dict[str, None] = {}  # marks of the next step
        self._marked: dict[int, list[str]] = {}  # marks of steps that have begun, by the number of the step
        self._steps = 0
        self._epochs = 1  # of the last call of `fit`
        self._last = 0.0

    def install(self) -> None:
        self._seed()
        policy = self._session.value(PRECISION)
        if policy is not None:
            self._keras.mixed_precision.set_global_policy(policy)
            for name in _OF_POLICIES:  # the probe's policy also holds if the script sets another policy
                importing.after(name, _keep_policy)
        model: Any = self._keras.Model
        model.fit, model.compile = self._around_fit(model.fit), self._around_compile(model.compile)

    def _seed(self) -> None:
        """Seeds all generators, as the torch hook does. Keras draws its own seeds from `random`."""
        seed = self._session.seed
        if seed is None:
            return
        random.seed(seed)
        self._if_loaded("numpy", lambda numpy: numpy.random.seed(seed % 2**32))
        self._if_loaded("tensorflow", lambda tensorflow: tensorflow.random.set_seed(seed))

    @staticmethod
    def _if_loaded(name: str, function: Function) -> None:
        module = sys.modules.get(name)
        if module is not None:
            function(module)

    def _around_compile(self, original: Function) -> Function:
        signature = inspect.signature(original)

        @functools.wraps(original)
        def compile(model: Any, *args: Any, **kwargs: Any) -> Any:
            given = signature.bind(model, *args, **kwargs)
            for target in (STEPS, JIT):
                value = self._session.value(target)
                if value is not None and Reporter.hooked() is not None:
                    given.arguments[target.rpartition(".")[2]] = value
            return original(*given.args, **given.kwargs)

        return compile

    def _around_fit(self, original: Function) -> Function:
        signature = inspect.signature(original)

        @functools.wraps(original)
        def fit(model: Any, *args: Any, **kwargs: Any) -> Any:
            given = signature.bind(model, *args, **kwargs)
            if Reporter.hooked() is not None:
                self._prepare(model, given.arguments)
            return original(*given.args, **given.kwargs)

        return fit

    def _prepare(self, model: Any, arguments: dict[str, Any]) -> None:
        """Sets the batch size, and adds a callback."""
        batches = Batches(arguments, self._keras.utils.PyDataset)
        self._epochs = int(arguments.get("epochs", 1)) - int(arguments.get("initial_epoch", 0))
        size = self._session.value(BATCH_SIZE)
        if size is not None and batches.is_sized:
            arguments["batch_size"] = size
            self._session.apply(BATCH_SIZE)
        elif size is not None:
            reason = f"model.fit gets its batches from a {batches.kind}, and only cuts arrays into batches itself"
            self._session.explain(BATCH_SIZE, reason)
        callback = self._keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda epoch, logs=None: self._mark("epoch"),
            on_train_batch_begin=lambda batch, logs=None: self._begin_batch(batch),
            on_train_batch_end=lambda batch, logs=None: self._end_batch(model, batches, batch, logs or {}),
            on_test_begin=lambda logs=None: self._mark("evaluation"),
            async_safe=True,  # else Keras would wait for the device at each step
        )
        given = arguments.get("callbacks")
        if isinstance(given, self._keras.callbacks.CallbackList):
            given.callbacks.append(callback)
        else:
            given = [] if given is None else given
            arguments["callbacks"] = [*(given if isinstance(given, (list, tuple)) else [given]), callback]

    def _mark(self, name: str) -> None:
        with self._lock:
            if self._has_begun:
                self._marks[name] = None
                self._session.flush()

    def _begin_batch(self, batch: int) -> None:
        """Gives the marks to the step that begins now, as Keras may report the ends of earlier steps later."""
        self._has_begun = True
        if self._marks:
            with self._lock:
                self._marked[batch] = list(self._marks)
                self._marks.clear()

    def _end_batch(self, model: Any, batches: Batches, batch: int, logs: dict[str, Any]) -> None:
        """Reports the steps of one call of the compiled function, `steps_per_execution` steps, in one event.

        Keras has waited for the steps if it has read their logs. `batch` is the number of the last step, or in older
        versions of Keras of the first step.
        """
        with self._lock:
            is_first, count = self._steps == 0, int(model.steps_per_execution or 1)
            number = batch - batch % count
            self._steps += count
            samples, marks = batches.samples(number, count), self._marked.pop(number, [])
            if is_first:
                self._begin(model, batches)
            if Reporter.current() is None or _client.user_steps:  # a script may report its steps itself
                return
            now = self._last = max(time.perf_counter(), self._last)
            fields = {"time": now, "samples": samples, "loss": logs.get("loss")}
            events: list[tuple[str, dict[str, Any]]] = [("mark", {"name": name}) for name in marks]
            events.append(("step", {name: value for name, value in fields.items() if value is not None}))
            self._session.send_soon(events, now)
            self._stopping.after_step(self._steps, now)

    def _begin(self, model: Any, batches: Batches) -> None:
        """At the first step: reports facts about the training, and checks which settings took effect."""
        reporter = Reporter.hooked()
        if reporter is not None:
            reporter.version = 1  # the settings do not change in a process, even if the torch hook is loaded as well
            reporter.claim()
        self._session.own()
        _client.at_exit(self._session.flush, 0)
        if self._is_measured:
            self._say_facts(model, batches)
            self._check_experiment(batches)
        found = {STEPS: model.steps_per_execution, JIT: bool(model.jit_compile), PRECISION: model.dtype_policy.name}
        for target, value in found.items():
            if self._session.value(target) == value:
                self._session.apply(target)
            else:
                self._session.explain(target, f"the model trains with {value}")
        other = f"Keras trains on {self._backend}, where only keras.* targets have an effect"
        self._session.check(dict.fromkeys(self._session.settings, other))

    def _say_facts(self, model: Any, batches: Batches) -> None:
        facts = self._facts
        facts.say("keras.backend", self._backend)
        facts.say("keras.steps_per_execution", model.steps_per_execution)
        facts.say("keras.jit_compile", bool(model.jit_compile))
        facts.say("precision", _DTYPES.get(model.dtype_policy.compute_dtype))
        facts.say("loader.batch_size", batches.size)
        facts.say("loader.samples", None if _client.user_steps else batches.of_an_epoch)
        if self._epochs > 1:  # a script may call `fit` once for each epoch
            facts.say("run.epochs", self._epochs)
        facts.say("samples.counted_by", None if _client.user_steps else batches.counted_by)
        facts.say("optimizer", type(model.optimizer).__name__)
        facts.say("parameters", model.count_params() if model.built else None)
        facts.say("import_seconds", TIMES.take())

    def _check_experiment(self, batches: Batches) -> None:
        asked = self._session.experiment
        if asked is None or asked.mode == OBSERVE:
            return
        if asked.mode != FIRST_RUN:
            message = f"{asked.mode} needs a script that trains with PyTorch; Keras trains on {self._backend}"
            self._session.send("error", kind="rejected", message=message)
        elif not _client.user_steps:
            FIRST.note("trainer", TRAINER)
            FIRST.note("sized", batches.is_sized)
            FIRST.note("samples", batches.size)


def _keep_policy(module: ModuleType) -> None:
    for name in ("set_global_policy", "set_dtype_policy"):
        if hasattr(module, name):
            setattr(module, name, lambda policy: None)
