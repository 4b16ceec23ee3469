"""What the machine's disks did while steps ran."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from trainperf.findings.text import Bytes, Share
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.model import Params


def busiest_disk(facts: Facts, what: Literal["read", "written"]) -> Params:
    """Of the disk that had work for most of the time: its name, that share, how much it read or wrote in a second, and
    whose part of it was this run's. Empty where none had work for half of the time, or it is not known."""
    table, machine = facts.run.steps, facts.run.machine
    at = np.array([reading.at_ns for reading in facts.run.host], dtype=np.int64)
    during = np.flatnonzero((at >= table.start_ns[0]) & (at <= table.start_ns[-1] + table.wall_ns[-1]))
    if len(during) < 2:
        return {}
    first, last = during[0], during[-1]
    wall_ns = at[last] - at[first]
    grown = {name: int(so_far[last] - so_far[first]) for name, so_far in machine.items()}
    busy = {name.partition(":")[2]: ns for name, ns in grown.items() if name.startswith("disk_busy_ns:")}
    disk = max(busy, key=lambda name: busy[name], default=None)
    if disk is None or busy[disk] < limit("half_share") * wall_ns:
        return {}
    moved, own = grown.get(f"disk_{what}_bytes:{disk}", 0), grown.get(f"own_{what}_bytes")
    if moved <= 0:
        return {}
    return {
        "disk": disk,
        "disk_busy": Share(min(1.0, busy[disk] / wall_ns)),
        "disk_moved": Bytes(moved * 1e9 / wall_ns),
        "disk_own": Share(min(1.0, own / moved)) if own is not None else None,
    }
