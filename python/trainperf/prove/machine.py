"""What a trial's processes and everybody else used of the machine's CPUs, and how much memory is free."""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CpuUse:
    """At one moment, in seconds of CPU."""

    at: float
    machine: float
    own: float  # of this process' session, which a trial has for itself

    @classmethod
    def now(cls) -> CpuUse | None:
        """None where there is no /proc."""
        try:
            return cls(time.perf_counter(), _machine(), _session(os.getsid(0)))
        except (OSError, ValueError, IndexError):
            return None

    def others_since(self) -> float | None:
        """CPUs that other programs used since then, on average."""
        now = CpuUse.now()
        if now is None or now.at - self.at < 0.1:
            return None
        return max(0.0, (now.machine - self.machine) - (now.own - self.own)) / (now.at - self.at)


def free_bytes() -> dict[str, int]:
    """Memory that is free, and shared memory that is: both limit how many workers there may be."""
    free = {}
    with open("/proc/meminfo") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                free["memory"] = int(line.split()[1]) * 1024
    try:
        room = os.statvfs("/dev/shm")
        free["/dev/shm"] = room.f_bavail * room.f_frsize
    except OSError:
        pass
    return free


def _machine() -> float:
    with open("/proc/stat") as file:
        user, nice, system, _idle, _iowait, irq, softirq, steal, *_ = map(int, file.readline().split()[1:])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _session(session: int) -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = (ended.ru_utime + ended.ru_stime) * os.sysconf("SC_CLK_TCK")
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[3]) == session:
            total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")
