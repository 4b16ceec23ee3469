"""Whether a loader's workers wait for one another: for a lock that they share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings.syscalls import syscall_name
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.runfile import Loader

_FILE_LOCKS = {"flock", "fcntl"}


def lock_share(facts: Facts, loader: Loader, workers: int) -> float:
    """Of the looks at its workers at work, those that found one waiting for a lock of several processes. 0 where these
    are too few, or fewer than serialized workers have: of w workers that wait for one lock all the time, 1 - 1/w wait.

    An idle worker is in no such wait: it polls the queue of its indices.
    """
    looks = locked = 0
    for worker in loader.workers:
        for (call, shared), count in worker.waits.items():
            looks += count
            is_lock = shared or (call >= 0 and syscall_name(call, facts.machine) in _FILE_LOCKS)
            locked += count * is_lock
    if workers < 2 or locked < limit("min_samples"):
        return 0.0
    share = locked / looks
    return share if share >= limit("half_share") * (1 - 1 / workers) else 0.0
