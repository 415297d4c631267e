"""Folders of loggers: the next version of one, a run by its time of another, and a link to the last run of a third."""

import csv
import os
import shutil
import struct
import time


def next_version(root):
    os.makedirs(root, exist_ok=True)
    versions = [int(entry.name.split("_")[1]) for entry in os.scandir(root) if entry.is_dir()]
    folder = os.path.join(root, f"version_{max(versions, default=-1) + 1}")
    os.makedirs(folder)
    return folder


def link_last(root, name):
    os.makedirs(os.path.join(root, name))
    link = os.path.join(root, "latest-run")
    if os.path.islink(link):
        os.unlink(link)
    os.symlink(name, link)


version = next_version("lightning_logs")
events = os.path.join("runs", time.strftime("%b%d_%H-%M-%S"), f"events.out.{os.getpid()}")
os.makedirs(os.path.dirname(events))
link_last("tracker", f"run-{os.getpid()}")
shutil.copy(__file__, os.path.join("tracker", "latest-run", "code.py"))
with open(os.path.join(version, "metrics.csv"), "w", newline="") as file, open(events, "wb") as binary:
    rows = csv.writer(file)
    for step in range(1, 400):
        time.sleep(0.01)
        rows.writerow([step, 1 / step])
        file.flush()
        binary.write(struct.pack("<qd", step, 1 / step))
        with open(os.path.join("tracker", "latest-run", "history.jsonl"), "a") as history:
            history.write(f'{{"step": {step}}}\n')
        print(f"step {step}: {800.0:.1f} samples/s", flush=True)
