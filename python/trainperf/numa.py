"""Where the CPUs and the memory of this process are, on a machine of several NUMA nodes. Linux only."""

from __future__ import annotations

import os
import re
from collections.abc import Set
from typing import Any

from trainperf import container


def placement(
    *, sys: str = "/sys", process: str = "/proc/self/cgroup", affinity: Set[int] | None = None
) -> dict[str, Any]:
    """By node: on how many of its CPUs the process may run, and the bytes that its cgroup has there, files aside (of
    version 2; to ask for those of the process alone would stop it for long). {} on a machine of one node."""
    folder = f"{sys}/devices/system/node"
    names = os.listdir(folder) if os.path.isdir(folder) else []
    nodes = sorted(int(name[4:]) for name in names if re.fullmatch(r"node\d+", name))
    if len(nodes) < 2:
        return {}
    usable = os.sched_getaffinity(0) if affinity is None else affinity
    cpus = {str(node): len(usable & _numbers(container.read(f"{folder}/node{node}/cpulist"))) for node in nodes}
    for cgroup in container.folders("memory", f"{sys}/fs/cgroup", process):
        found = re.search(r"^anon (.*)$", container.read(f"{cgroup}/memory.numa_stat"), re.MULTILINE)
        if found is not None:
            memory = {node: int(held) for node, held in re.findall(r"N(\d+)=(\d+)", found[1])}
            return {"cpus": cpus, "memory": memory}
    return {"cpus": cpus}


def _numbers(text: str) -> set[int]:
    """Of "0-3,8"."""
    spans = re.findall(r"(\d+)(?:-(\d+))?", text)
    return {number for first, last in spans for number in range(int(first), int(last or first) + 1)}
