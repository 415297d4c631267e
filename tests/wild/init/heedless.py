"""It does not look for --help: it writes, and trains at once."""
import argparse
import os
import shutil
import sqlite3
import time

parser = argparse.ArgumentParser(add_help=False)
parser.add_argument("--batch-size", type=int, default=20)
options, _ = parser.parse_known_args()
attempts = [
    lambda: open("log.txt", "a"),
    lambda: os.remove("kept.pt"),
    lambda: os.rename("kept.pt", "moved.pt"),
    lambda: os.makedirs("runs/1"),
    lambda: shutil.rmtree("results"),
    lambda: sqlite3.connect("runs.db").execute("create table a (b)"),
    lambda: os.truncate("kept.pt", 0),
    lambda: os.symlink("kept.pt", "last.pt"),
    lambda: os.close(os.open("opened", os.O_CREAT | os.O_WRONLY)),
]
refused = 0
for attempt in attempts:
    try:
        attempt()
    except OSError:
        refused += 1
    except sqlite3.OperationalError:
        refused += 1
print(f"{refused} of {len(attempts)} refused", flush=True)
while True:
    time.sleep(0.1)
