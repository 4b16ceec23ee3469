"""Reads the tables of the processes that a run started beside DataLoader workers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from trainperf.runfile.records import Child, WorkerSamples
from trainperf.runfile.schema import RunDatabase


def read_children(database: RunDatabase) -> Sequence[Child]:
    inside: defaultdict[int, list[WorkerSamples]] = defaultdict(list)
    for child, stack, state, *counts in database.rows("child_stack", "iisii"):
        inside[child].append(WorkerSamples(stack, state, *counts))
    workers = {pid for (pid,) in database.rows("worker", "i", columns=("pid",))}
    return [
        Child(pid, name, command, first, last, max(0, cpu) / 1e9, inside[id])
        for id, pid, first, last, cpu, name, command in database.rows("child", "iiiiiss", order="ORDER BY id")
        if pid not in workers  # seen before it was known as one
    ]
