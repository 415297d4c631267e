"""Tests of the times of a step's phases, by the host's clock and by a device's events."""

import os
import sys
import types
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

try:
    import torch
except ImportError as missing:
    raise unittest.SkipTest("torch is not installed") from missing

from gputune._hook.batches import samples_in  # noqa: E402
from gputune._hook import transfers  # noqa: E402
from gputune._hook.step_times import StepTimes  # noqa: E402
from gputune._hook.timeline import HostClock, Phases  # noqa: E402


class Device:
    """A mock of `torch.cuda` with one stream. Its work takes the `milliseconds` that the test adds."""

    def __init__(self):
        self.milliseconds = 0.0
        self.done = 0.0
        device = self

        class Event:
            made = 0

            def __init__(self, enable_timing):
                assert enable_timing
                Event.made += 1

            def record(self, stream):
                self.at = device.milliseconds

            def query(self):
                return self.at <= device.done

            def synchronize(self):
                device.done = max(device.done, self.at)

            def elapsed_time(self, end):
                assert end.query(), "the device is not there yet"
                return end.at - self.at

        self.Event = Event

    def patch(self):
        names = {
            "Event": self.Event,
            "current_stream": lambda device: None,
            "is_current_stream_capturing": lambda: False,
        }
        return mock.patch.multiple(torch.cuda, **names)


class OnADevice(unittest.TestCase):
    def setUp(self):
        self.device = Device()
        patch = self.device.patch()
        patch.start()
        self.addCleanup(patch.stop)
        self.phases = Phases()
        self.phases.enter("optimizer")  # as by a closure, before the device is known
        self.phases.decide(types.SimpleNamespace(type="cuda"))

    def work(self, milliseconds):
        self.device.milliseconds += milliseconds

    def test_inner_parts_count_once(self):
        self.work(1)
        self.phases.enter("forward")
        self.work(10)
        self.phases.leave()
        self.work(2)
        self.phases.leave()
        segments = self.phases.take()
        end = self.phases.clock.mark()
        self.assertFalse(self.phases.clock.is_reached(end))
        self.phases.clock.wait(end)
        sums = StepTimes(self.phases.clock, end, segments).phases()
        self.assertAlmostEqual(sums["optimizer"], 0.003)
        self.assertAlmostEqual(sums["forward"], 0.010)

    def test_times_follow_the_device_and_events_are_used_again(self):
        self.phases.leave()
        clock = self.phases.clock
        times = []
        for _ in range(50):
            self.phases.enter("forward")
            self.work(20)
            self.phases.leave()
            end = clock.mark()
            clock.wait(end)
            StepTimes(clock, end, self.phases.take()).release()
            times.append(clock.time(end))
        for one, other in zip(times, times[1:]):
            self.assertAlmostEqual(other - one, 0.02)
        self.assertLess(self.device.Event.made, 12)


    def test_parts_that_another_stream_has_yet_to_finish_are_left_out(self):
        self.phases.leave()
        self.phases.take()
        clock = self.phases.clock
        self.phases.enter("forward")
        self.work(10)
        self.phases.leave()
        end = clock.mark()
        begin = clock.mark()
        self.work(50)  # a copy that ends after the step
        self.phases.add("host_to_device", begin, clock.mark())
        clock.wait(end)
        times = StepTimes(clock, end, self.phases.take())
        self.assertEqual(set(times.phases()), {"forward"})
        times.release()
        made = self.device.Event.made
        self.assertTrue(all(event.query() for event in clock._pool), f"{made} events, some in use")

    def test_the_device_waits_for_data_only_while_it_has_nothing_to_do(self):
        self.phases.leave()
        clock = self.phases.clock
        self.phases.take()
        clock.time(clock.mark())
        for idle, on_host, felt in (((0,), 20, 0), ((5,), 20, 5), ((20,), 20, 20), ((30,), 20, 20), ((5, 7), 40, 12), ((), 9, 9)):
            with self.subTest(idle=idle):
                for milliseconds in idle:  # for each batch of the step
                    begin = self.phases.mark_wait()
                    self.work(milliseconds)
                    self.phases.add_wait(begin)
                    self.work(3)  # the copy, and the script's computations before the model
                    self.phases.enter("forward")
                    self.work(40)
                    self.phases.leave()
                end = clock.mark()
                clock.wait(end)
                times = StepTimes(clock, end, self.phases.take())
                self.assertAlmostEqual(times.data_wait(on_host / 1e3), felt / 1e3)
                self.assertNotIn("data_wait", times.phases())
                clock.time(end)

    def test_of_what_other_threads_wait_for_only_what_is_within_the_gap_counts(self):
        self.phases.leave()
        for is_on_device in (True, False):
            clock = self.phases.clock if is_on_device else HostClock()
            with self.subTest(is_on_device):
                self.phases.take()
                begin, end = (clock.mark(), clock.mark()) if is_on_device else (0.0, 0.0)
                first = StepTimes(clock, end, [("forward", begin, end)])
                self.assertEqual(first.data_wait(0.003, 0.05), 0.003, "the gap before the first step is not known")
                clock.wait(end)
                clock.time(end)
                self.work(20)
                begin, end = (clock.mark(), clock.mark()) if is_on_device else (0.02, 0.03)
                clock.wait(end)
                times = StepTimes(clock, end, [("forward", begin, end)])
                self.assertAlmostEqual(times.data_wait(0.0, 0.05), 0.02)
                self.assertAlmostEqual(times.data_wait(0.015, 0.05), 0.02)
                self.assertAlmostEqual(times.data_wait(0.0, 0.005), 0.005)
                self.assertAlmostEqual(times.data_wait(0.03), 0.02 if is_on_device else 0.03)

    def test_evaluation_and_other_threads_mark_no_waits(self):
        with torch.no_grad():
            self.assertIsNone(self.phases.mark_wait())
        self.phases.thread = -1
        self.assertIsNone(self.phases.mark_wait())

    def test_of_another_stream_only_what_the_step_had_to_wait_for_counts(self):
        self.phases.leave()
        clock = self.phases.clock
        self.phases.take()
        clock.time(clock.mark())
        aside = types.SimpleNamespace(name="aside")
        begin = clock.mark()
        self.work(10)  # the main stream is idle in this time
        self.phases.enter("forward")
        self.work(40)
        late = clock.mark()
        begin.gputune_stream = late.gputune_stream = aside
        self.phases.add("host_to_device", begin, late)
        self.phases.leave()
        end = clock.mark()
        end.gputune_stream = types.SimpleNamespace(name="main")
        clock.wait(end)
        times = StepTimes(clock, end, self.phases.take())
        self.assertAlmostEqual(times.phases()["host_to_device"], 0.010)

    def test_nothing_is_asked_while_a_graph_is_captured(self):
        self.phases.leave()
        end = self.phases.clock.mark()
        with mock.patch.object(self.phases.clock, "is_capturing", lambda: True):
            self.assertIsNone(self.phases.clock.mark())
            with mock.patch.object(end, "query", side_effect=RuntimeError("the capture is over")):
                self.assertFalse(self.phases.clock.is_reached(end))
                self.phases.clock.wait(end)

    def test_a_child_does_not_touch_the_device(self):
        child = os.fork()
        if child == 0:
            with mock.patch.object(self.device.Event, "record", side_effect=RuntimeError("a device of the parent's")):
                self.phases.enter("forward")
                self.phases.leave()
                os._exit(0 if self.phases.device is None and self.phases.thread is None else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)


class WhereItTrains(unittest.TestCase):
    """Backward passes decide which device is the training device. `called_on` is the device of the last forward pass."""

    def setUp(self):
        patch = Device().patch()
        patch.start()
        self.addCleanup(patch.stop)
        self.phases = Phases()
        self.changes = []
        self.phases.changed.append(lambda device: self.changes.append(device.type))

    def backward(self, loss, called_on=None):
        self.phases.called_on = None if called_on is None else torch.device(called_on)
        self.phases.decide(torch.device(loss))

    def test_a_forward_pass_alone_decides_nothing(self):
        self.phases.called_on = torch.device("cpu")
        self.phases.enter("forward")
        self.phases.leave()
        self.assertIsNone(self.phases.device)
        self.backward("cuda:0", "cuda:0")
        self.assertEqual((self.phases.device, self.changes), (torch.device("cuda:0"), ["cuda"]))

    def test_a_try_on_the_cpu_with_its_backward_pass_is_followed_by_a_move(self):
        self.backward("cpu", "cpu")
        self.backward("cuda:0", "cuda:0")
        self.assertEqual(self.changes, ["cpu", "cuda"])
        self.assertTrue(self.phases.clock.is_of_device)

    def test_a_loss_on_the_host_is_of_a_module_on_the_device(self):
        self.backward("cpu", "cuda:0")
        self.assertEqual(self.changes, ["cuda"])

    def test_once_steps_are_made_only_a_move_away_from_the_cpu_counts(self):
        self.backward("cpu", "cpu")
        self.phases.settle()
        self.backward("cuda:0")
        for other in ("cpu", "cuda:1", "cuda:0"):
            self.backward(other)
        self.assertEqual(self.changes, ["cpu", "cuda"])


class Copies(unittest.TestCase):
    def test_only_what_goes_to_the_device_is_timed(self):
        tensor = torch.ones(1)
        for args, kwargs, kind in (
            ((torch.float64,), {}, None),
            ((), {"dtype": torch.float64}, None),
            (("cpu",), {}, "cpu"),
            ((torch.device("cuda", 1), torch.float16), {}, "cuda"),
            ((), {"device": "cuda:0", "non_blocking": True}, "cuda"),
            ((0,), {}, "cuda"),
            ((tensor,), {}, "cpu"),
            ((), {"other": tensor}, "cpu"),
        ):
            self.assertEqual(transfers._target(args, kwargs, "cuda"), kind, (args, kwargs))


class Batches(unittest.TestCase):
    def test_samples_are_the_leading_dimension_through_containers(self):
        images = torch.zeros(8, 3, 4, 4)
        for batch in (images, (images, None), {"ids": images}, [[images]], types.SimpleNamespace(x=images), images.numpy()):
            self.assertEqual(samples_in(batch), 8)
        self.assertIsNone(samples_in((1.0, "name", torch.tensor(1.0))))

    def test_lists_of_images_count_their_entries(self):
        images = tuple(torch.zeros(3, 4, 4) for _ in range(5))
        self.assertEqual(samples_in((images, ("a",) * 5), 5), 5)
        self.assertEqual(samples_in(list(images), 5), 5)

    def test_packed_sequences(self):
        sequences = [torch.zeros(length, 2) for length in (5, 3, 1)]
        self.assertEqual(samples_in(torch.nn.utils.rnn.pack_sequence(sequences)), 3)


if __name__ == "__main__":
    unittest.main()
