"""The process and the machine over the run: CPUs, memory, threads, throttling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainperf.run import Run


@dataclass(frozen=True, slots=True)
class Series:
    """One number over the run."""

    name: str
    words: str
    unit: str  # "CPUs", "GB", "", "ms/s"
    values: tuple[float, ...]
    top: float  # of its picture

    @property
    def mean(self) -> float:
        return sum(self.values) / len(self.values)


@dataclass(frozen=True, slots=True)
class Host:
    readings: int
    seconds: float
    series: tuple[Series, ...]


def host(run: Run) -> Host:
    readings = run.host
    pairs = [(a, b) for a, b in pairwise(readings) if b.at_ns > a.at_ns]
    seconds = (readings[-1].at_ns - readings[0].at_ns) / 1e9 if readings else 0.0
    if not pairs:
        return Host(len(readings), seconds, ())

    def rate(field: str) -> list[float]:
        return [max(0, getattr(b, field) - getattr(a, field)) / (b.at_ns - a.at_ns) for a, b in pairs]

    process, busy, idle = rate("process_cpu_ns"), rate("machine_busy_ns"), rate("machine_idle_ns")
    cpus = max((b + i for b, i in zip(busy, idle, strict=True)), default=0.0)
    series = [
        _series("this process", "CPUs that it used, all threads", "CPUs", process, cpus),
        _series("the machine", "CPUs in use by anybody", "CPUs", busy, cpus),
        _series("memory", "resident, of this process", "GB", [r.rss_bytes / 1e9 for r in readings]),
        _series("threads", "of this process", "", [float(r.threads) for r in readings]),
        _series(
            "runnable", "threads of the machine that run or wait for a CPU", "", [float(r.runnable) for r in readings]
        ),
    ]
    if all(r.throttled_ns >= 0 for r in readings):
        throttled = [1000 * r for r in rate("throttled_ns")]
        if any(throttled):
            series.append(_series("throttled", "by the container's CPU quota", "ms/s", throttled))
    return Host(len(readings), seconds, tuple(series))


def _series(name: str, words: str, unit: str, values: Sequence[float], top: float = 0.0) -> Series:
    return Series(name, words, unit, tuple(values), max(top, *values, 1e-9) if values else 1.0)
