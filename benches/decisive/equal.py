"""A training step in pure Python whose parameter `variant` changes nothing. It reports events, and needs no framework.

With `--orders` the step also obeys the orders `hold`, `go` and `stop`, so probes of several configs can be interleaved.
"""

import argparse
import json
import os
import select
import socket
import time

SAMPLES = 8
#: Additions in a step: about 10 ms on a core of 2024.
ADDITIONS = 150_000


class Client:
    """The connection to the probe. Outside a probe it does nothing."""

    def __init__(self, obeys):
        self.unread = b""
        self.socket = None
        path = os.environ.get("GPUTUNE_SOCKET")
        if path:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(path)
        if obeys:
            self.send("hello", orders=True, version=2)

    def send(self, event, **members):
        if self.socket:
            self.socket.sendall((json.dumps({"event": event, **members}) + "\n").encode())

    def is_readable(self):
        return self.socket is not None and bool(select.select([self.socket], [], [], 0)[0])

    def orders(self):
        """Waits for the next bytes, and yields the orders in them."""
        data = self.socket.recv(1 << 16)
        if not data:
            raise SystemExit
        *lines, self.unread = (self.unread + data).split(b"\n")
        for line in lines:
            yield json.loads(line)

    def obey(self):
        """Follows the orders that have come. Returns when the process may train."""
        is_held = False
        while is_held or self.is_readable():
            for order in self.orders():
                if order["order"] == "stop":
                    self.send("bye")
                    raise SystemExit
                if order["order"] == "hold":
                    is_held = True
                    self.send("held")
                elif order["order"] == "configure":
                    self.send("configured", segment=order["segment"], refused="settings are read at the start only")
                elif order["order"] == "go":
                    is_held = False


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--orders", action="store_true")
    args = parser.parse_args()
    config = {"variant": 0, **json.loads(os.environ.get("GPUTUNE_CONFIG", "{}"))}
    client = Client(args.orders)
    client.send("fact", name="variant", value=config["variant"])
    while True:
        began, total = time.perf_counter(), 0
        for number in range(ADDITIONS):
            total += number & 7
        now = time.perf_counter()
        client.send("step", samples=SAMPLES, time=now, seconds=now - began)
        if args.orders:
            client.obey()


if __name__ == "__main__":
    main()
