"""Flags by python-fire."""

import fire


def train(data, batch_size=32, num_workers: int = 2, amp=False):
    """Trains on DATA.

    Args:
        data: The folder.
        batch_size: Samples of a step.
    """


fire.Fire(train)
