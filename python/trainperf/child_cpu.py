"""CPU time of all processes that this one has started, and those that they started."""

from __future__ import annotations

import os


def child_cpu_ns() -> int:
    """Of the living as far as /proc tells, and of those that were waited for. Daemons that left the family are lost."""
    times = os.times()
    ticks_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    ended_ns = round((times.children_user + times.children_system) * 1e9)
    left, seen, ticks = _children("self"), set[str](), 0
    while left:
        pid = left.pop()
        if pid in seen:
            continue
        seen.add(pid)
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            ticks += sum(int(field) for field in fields[11:15])  # its own, and of its children that it waited for
        except (OSError, ValueError):
            continue  # it has just ended
        left += _children(pid)
    return ended_ns + ticks * ticks_ns


def _children(pid: str) -> list[str]:
    """By all its threads; none where the kernel does not tell (no CONFIG_PROC_CHILDREN)."""
    found: list[str] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                found += file.read().split()
        except OSError:
            continue  # this thread has just ended
    return found
