"""Who used the CPUs during a run, from the readings of the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trainperf.findings.cpu_room import used_cpus
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainperf.runfile import RunReader


# Of a worker's life, before its first reading and after its last, at most: there is a reading a second, or several.
_UNREAD_S = 2.0


@dataclass(frozen=True, slots=True)
class CpuUse:
    """In CPUs, over the whole watch."""

    own: float  # this process and its loaders' workers
    workers: float  # of it
    others: float  # neither this process nor any that it started, on all of the machine's CPUs
    children: float = 0.0  # processes that it started, beside the workers
    elsewhere: int = 0  # CPUs of the machine that this process may not run on: there others are in nobody's way


def used_beside(run: RunReader, stretches: Sequence[tuple[int, int]]) -> float | None:
    """CPUs that all processes but this one used, its workers and children among them: in the mean of these stretches,
    each from one time to another, in ns. None where they are not within the readings, which are a second apart."""
    host = run.host
    if len(host) < 2:
        return None
    at = [h.at_ns for h in host]
    used = [h.machine_busy_ns - h.process_cpu_ns for h in host]
    within = [(max(a, at[0]), min(b, at[-1])) for a, b in stretches]
    wall = sum(b - a for a, b in within if b > a)
    if wall < 0.5 * sum(b - a for a, b in stretches) or wall <= 0:
        return None
    return float(sum(np.interp(b, at, used) - np.interp(a, at, used) for a, b in within if b > a)) / wall


def usable_cpus(run: RunReader) -> int:
    """CPUs that the process and its workers may run on, in most of its steps; 0 when it is not known."""
    if found := used_cpus(run):
        return found
    text = run.meta.get("cpus", "")
    return int(text) if text.isdigit() else 0


def cpu_use(run: RunReader) -> CpuUse | None:
    """None: there are no two readings, or they are of a small part of a short watch."""
    host = run.host
    if len(host) < 2:
        return None
    first, last = host[0], host[-1]
    wall = last.at_ns - first.at_ns
    if wall <= 0 or wall < min(0.5 * run.watched_ns, limit("host_readings_s") * 1e9):
        return None
    seen = [worker for loader in run.loaders.values() for worker in loader.workers]
    workers = sum(w.cpu_seconds * 1e9 / wall for w in seen)
    # Of a watch, not from reading to reading; 0: a run that was killed, or of an older version.
    before, after = (int(run.meta.get(f"children_cpu_{when}_ns") or 0) for when in ("before", "after"))
    unread = max(0.0, (after - before) / run.watched_ns - workers) if run.watched_ns else 0.0
    of_each = [min(_UNREAD_S, max(0.0, run.watched_ns / 1e9 - w.seconds)) for w in seen]
    of_workers = min(unread, sum(of_each) * 1e9 / wall)
    workers += of_workers
    own = (last.process_cpu_ns - first.process_cpu_ns) / wall + workers
    rest = max(0.0, (last.machine_busy_ns - first.machine_busy_ns) / wall - own)
    children = min(rest, unread - of_workers)
    usable = usable_cpus(run)
    machine = last.machine_busy_ns - first.machine_busy_ns + last.machine_idle_ns - first.machine_idle_ns
    elsewhere = max(0, round(machine / wall) - usable) if usable else 0
    return CpuUse(own, workers, rest - children, children, elsewhere)
