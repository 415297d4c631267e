"""The phases of a step, on the host's clock and on a device's."""

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
from gputune._hook.timeline import Phases  # noqa: E402


class Device:
    """A stand-in for `torch.cuda`: a stream whose work takes the time that the test says."""

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
        self.phases.enter("optimizer")  # a closure: the device is not known yet
        self.phases.use_device(types.SimpleNamespace(type="cuda"))

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
        sums = self.phases.sums(segments)
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
            self.phases.sums(self.phases.take())
            times.append(clock.time(end))
        for one, other in zip(times, times[1:]):
            self.assertAlmostEqual(other - one, 0.02)
        self.assertLess(self.device.Event.made, 12)


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
