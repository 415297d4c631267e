"""Tests that the stand-in behaves like a CUDA device: late events, forked children, CUDA_VISIBLE_DEVICES."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import torch  # noqa: F401
except ImportError as missing:
    raise unittest.SkipTest("torch is not installed") from missing

import card
from card import tensors

SCRIPT = """
import os, time, torch
os.environ["CUDA_VISIBLE_DEVICES"] = "0"
print("devices", torch.cuda.device_count())
os.environ["CUDA_VISIBLE_DEVICES"] = ""
print("still", torch.cuda.device_count(), torch.cuda.is_initialized())
begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
begin.record()
torch.cuda._sleep(300_000_000)
end.record()
torch.cuda._sleep(3_000_000_000_000)
far = torch.cuda.Event(enable_timing=True)
far.record()
aside = torch.cuda.Stream()
with torch.cuda.stream(aside):
    other = torch.cuda.Event()
    other.record()
print("late", far.query(), "beside", other.query())
try:
    begin.elapsed_time(far)
except RuntimeError as error:
    print(error)
end.synchronize()
print("milliseconds", round(begin.elapsed_time(end)))
if os.fork() == 0:
    try:
        torch.cuda.current_stream()
        os._exit(0)
    except RuntimeError as error:
        print(error, flush=True)
        os._exit(1)
print("child", os.waitstatus_to_exitcode(os.wait()[1]))
"""

TENSORS = """
import time, torch
model = torch.nn.Linear(4, 2).cuda()
inputs = torch.arange(8.0).view(2, 4)
with torch.autocast("cuda", dtype=torch.bfloat16):
    outputs = model(inputs.cuda())
loss = outputs.float().sum()
loss.backward()
waited, tries = 0, 0
while waited < 0.1 and tries < 5:  # this process may stand still before it waits
    tries += 1
    torch.cuda._sleep(200_000_000)
    begin = time.perf_counter()
    loss.item()
    waited = time.perf_counter() - begin
print(outputs.device, outputs.dtype, model.weight.grad.cpu().tolist()[0], "waited", waited > 0.1)
"""

PINNED = """
import torch
pageable = torch.ones(1000)
pinned = pageable.pin_memory()
print("pinned", pinned.is_pinned(), pageable.is_pinned())
del pinned
print("later", any([torch.ones(1000).is_pinned() for _ in range(8)]))
"""


class Card(unittest.TestCase):
    def run_script(self, script):
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder, "log")
            environment = {**os.environ, "PYTHONPATH": card.START, "CARD_LOG": str(log), "CARD_DEVICES": "2"}
            Path(folder, "script.py").write_text(script)
            run = subprocess.run(
                [sys.executable, "-W", "ignore", str(Path(folder, "script.py"))],
                env=environment, capture_output=True, text=True, timeout=600,
            )
            return run.stdout + run.stderr, [json.loads(line) for line in log.read_text().splitlines()]

    def test_questions_events_and_children(self):
        output, entries = self.run_script(SCRIPT)
        self.assertIn("devices 1\nstill 1 False\n", output)
        self.assertIn("late False beside True\nBoth events must be completed", output)
        self.assertIn("milliseconds 300", output)
        self.assertIn("Cannot re-initialize CUDA in forked subprocess", output)
        self.assertIn("child 1", output)
        self.assertEqual((entries[0]["name"], entries[0]["by"]), ("device_count", "script"))
        self.assertEqual(entries[0]["where"], "script.py:4 <module>")

    def test_tensors(self):
        if tensors.missing() is not None:
            self.skipTest(tensors.missing())
        output, _ = self.run_script(TENSORS)
        self.assertIn("cuda:0 torch.bfloat16 [4.0, 6.0, 8.0, 10.0] waited True", output)

    def test_a_tensor_at_the_address_of_a_freed_pinned_tensor_is_not_pinned(self):
        if tensors.missing() is not None:
            self.skipTest(tensors.missing())
        output, _ = self.run_script(PINNED)
        self.assertIn("pinned True False\nlater False\n", output)


if __name__ == "__main__":
    unittest.main()
