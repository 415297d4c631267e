"""A process that uses one core for 1 to 20 s, then idles for 1 to 20 s, and so on until its parent is gone.

    python3 benches/decisive/neighbour.py SEED
"""

import os
import random
import sys
import time


def main() -> None:
    draw, parent = random.Random(int(sys.argv[1])), os.getppid()
    while os.getppid() == parent:
        end = time.monotonic() + draw.uniform(1, 20)
        while time.monotonic() < end and os.getppid() == parent:
            sum(range(10_000))
        end = time.monotonic() + draw.uniform(1, 20)
        while time.monotonic() < end and os.getppid() == parent:
            time.sleep(0.1)


if __name__ == "__main__":
    main()
