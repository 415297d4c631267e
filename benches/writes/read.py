"""Reads small files, epoch after epoch, as a loader does; prints when it began, and how many files it read per second."""

import os
import sys
import time

# The processor's time counts from the start of the process on, before it became Python.
print("began", time.time(), flush=True)
print("started", time.process_time(), flush=True)
folder, epochs = sys.argv[1], int(sys.argv[2])
paths = [os.path.join(where, name) for where, _, names in os.walk(folder) for name in sorted(names)]
for epoch in range(epochs):
    start, used = time.perf_counter(), time.process_time()
    for path in paths:
        with open(path, "rb") as file:
            file.read()
    seconds, used = time.perf_counter() - start, time.process_time() - used
    # What comes first fills caches.
    if epoch:
        print("rate", len(paths) / seconds, flush=True)
        print("of processor", len(paths) / used, flush=True)
