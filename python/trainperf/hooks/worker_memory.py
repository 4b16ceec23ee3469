"""The memory of DataLoader workers, read from outside; where it rises, the line of the dataset that keeps something."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from trainperf.hooks.context import Context
from trainperf.hooks.kept_memory import own_memory, rises

_EVERY_S = 1.0
_MOST_WORKERS, _MOST_READINGS = 64, 64
_WRITE_EACH = 5  # readings


class WorkerMemoryHook:
    """Once a second at the end of a backward: 15 us a worker. Readings begin anew with other workers."""

    name = "worker_memory"
    needs = "torch"

    def __init__(self) -> None:
        self._context: Context | None = None
        self._pid = os.getpid()
        self._every = _EVERY_S
        self._pids: tuple[int, ...] = ()
        self._readings: list[tuple[float, int]] = []
        self._since_written = 0
        self._line: dict[str, Any] | None = None  # {}: there is none, or several
        self._own_ns = 0

    def install(self, context: Context) -> None:
        self._context = context
        context.ticker.add(self.name, self._tick)

    def remove(self) -> None:
        context, self._context = self._context, None
        if context is not None:
            context.ticker.discard(self.name)
            if os.getpid() == self._pid:
                self._write(context)

    def _tick(self) -> float:
        context = self._context
        if context is None or not context.workers:
            return _EVERY_S
        again_s = self._every
        began = time.perf_counter_ns()
        self._read(context, time.monotonic())
        self._own_ns += time.perf_counter_ns() - began
        context.session.set_overhead(self.name, self._own_ns)
        return again_s

    def _read(self, context: Context, now: float) -> None:
        held: dict[int, int] = {}
        for pid in list(context.workers)[:_MOST_WORKERS]:
            resident = own_memory(pid)
            if resident is None or not resident:  # it has ended
                context.workers.pop(pid, None)
            else:
                held[pid] = resident
        if tuple(held) != self._pids:
            self._pids, self._readings, self._every, self._line = tuple(held), [], _EVERY_S, None
        if not held:
            return
        self._readings.append((now, sum(held.values())))
        if len(self._readings) > _MOST_READINGS:
            self._readings, self._every = self._readings[::2], 2 * self._every
        if self._line is None and rises(self._readings):
            self._line = _line_of(context.workers[next(iter(held))])
        self._since_written += 1
        if self._since_written >= _WRITE_EACH:
            self._write(context)

    def _write(self, context: Context) -> None:
        if not self._readings:
            return
        self._since_written = 0
        first = self._readings[0][0]
        readings = [[round(at - first, 2), resident] for at, resident in self._readings]
        told = {"workers": len(self._pids), "readings": readings, **(self._line or {})}
        context.session.set_meta("worker_memory", json.dumps(told))


def _line_of(kind: type) -> dict[str, Any]:
    """The only line of a dataset's class that adds to one of its attributes."""
    from trainperf.keeping import lines
    from trainperf.keeping.names import is_programs, source_of, type_name

    file, owner = source_of(kind), type_name(kind)
    line = lines.only_growing_line(lines.Sources(), file, owner) if is_programs(file) else None
    told: dict[str, Any] = {"dataset": owner}
    return told if line is None else {**told, "file": file, "line": line.line, "text": line.text}
