"""What the container lets this process use: CPUs and memory, by its cgroups and those above them. Linux only."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

_ROOT = "/sys/fs/cgroup"
_UNLIMITED = 1 << 60  # version 1 writes some huge number for "no limit"


def cpu_quota(*, root: str = _ROOT, process: str = "/proc/self/cgroup") -> float | None:
    """CPUs' worth of time that the quota allows, such as 1.5; None: no quota, or none that can be read."""
    quotas = []
    for folder in folders("cpu", root, process):
        text = read(f"{folder}/cpu.max").split()  # version 2: "150000 100000" or "max 100000"
        if not text:
            text = [read(f"{folder}/cpu.cfs_quota_us").strip(), read(f"{folder}/cpu.cfs_period_us").strip()]
        try:
            quota, period = int(text[0]), int(text[1])
        except (ValueError, IndexError):
            continue
        if quota > 0 and period > 0:
            quotas.append(quota / period)
    return min(quotas, default=None)


def memory_limit(*, root: str = _ROOT, process: str = "/proc/self/cgroup") -> int | None:
    """Bytes that the process may have: its container's limit, or the machine's memory; None: not known."""
    limits = []
    for folder in folders("memory", root, process):
        text = read(f"{folder}/memory.max") or read(f"{folder}/memory.limit_in_bytes")
        if text.strip().isdigit() and int(text) < _UNLIMITED:
            limits.append(int(text))
    with contextlib.suppress(ValueError, OSError):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(limits, default=None)


def folders(controller: str, root: str, process: str) -> Iterator[str]:
    """The controller's folders of this process, and those above: each of them may hold a limit."""
    for line in read(process).splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0" and not names:
            base = root if os.path.exists(f"{root}/cgroup.controllers") else f"{root}/unified"
        elif controller in names.split(","):
            base = f"{root}/{controller}"
        else:
            continue
        # In a container the path may be the host's, and not there: then only the root is.
        while path.strip("/"):
            yield base + path
            path = os.path.dirname(path)
        yield base


def read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return ""
