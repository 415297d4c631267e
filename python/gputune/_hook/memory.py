"""What the CUDA allocator reports. On a CPU there is nothing to report: gputune sees the memory of the processes."""

from __future__ import annotations

from typing import Optional

import torch

from gputune._hook.session import Session


class Memory:
    """Peaks since the last report, of each device that this process uses."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._is_on = False

    def begin(self, device: Optional[torch.device]) -> None:
        self._is_on = device is not None and device.type == "cuda"

    def report(self) -> None:
        if not self._is_on:
            return
        for device in range(torch.cuda.device_count()):
            stats = torch.cuda.memory_stats(device)
            held = stats.get("reserved_bytes.all.current", 0)
            if held == 0:
                continue
            free, total = torch.cuda.mem_get_info(device)
            self._session.send(
                "memory",
                allocated=stats["allocated_bytes.all.peak"],
                reserved=stats["reserved_bytes.all.peak"],
                other=max(total - free - held, 0),
                capacity=total,
                # An error that the script caught and went on from means "does not fit" as much as a retry.
                retries=stats.get("num_alloc_retries", 0) + stats.get("num_ooms", 0),
            )
            torch.cuda.reset_peak_memory_stats(device)
