"""The process and the machine over the run: CPUs, memory, threads, throttling, disks, networks, GPUs' clocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trainperf.findings import cpus
from trainperf.findings.gpu import HELD_BY
from trainperf.findings.text import Names
from trainperf.runfile.schema import count, described

if TYPE_CHECKING:
    from trainperf.run import Run
    from trainperf.runfile.records import Float64Array


# Counters of Run.machine: the name, what it is, its unit, and how much of the counter a second is 1 of that.
_COUNTERS: Final = {
    "disk_busy_ns": ("disk", "share of the time in which it was busy", "%", 1e7),
    "disk_read_bytes": ("read from", "by all programs", "MB/s", 1e6),
    "disk_written_bytes": ("written to", "by all programs", "MB/s", 1e6),
    "own_read_bytes": ("own reads", "from storage, of this process and its workers", "MB/s", 1e6),
    "own_written_bytes": ("own writes", "to storage, of this process and its workers", "MB/s", 1e6),
    "own_net_received_bytes": (
        "own received",
        "by TCP, of this process and its workers, at least; a peak may be what came before a connection was seen",
        "MB/s",
        1e6,
    ),
    "own_net_sent_bytes": ("own sent", "by TCP, of this process and its workers, at least", "MB/s", 1e6),
    "net_received_bytes": ("received by", "network, by all programs", "MB/s", 1e6),
    "net_sent_bytes": ("sent by", "network, by all programs", "MB/s", 1e6),
    "psi_cpu_ns": ("CPU pressure", "time in which some task of the machine waited for a CPU", "%", 1e7),
    "psi_io_ns": ("IO pressure", "time in which some task of the machine waited for storage", "%", 1e7),
    "psi_memory_ns": ("memory pressure", "time in which some task of the machine waited for memory", "%", 1e7),
    "major_faults": ("major faults", "pages read from storage, by all programs", "/s", 1.0),
    "swapped_in_bytes": ("swapped in", "by all programs", "MB/s", 1e6),
    "swapped_out_bytes": ("swapped out", "by all programs", "MB/s", 1e6),
}
# Likewise of those that are no counters: as they are at a reading.
_GAUGES: Final = {
    "gpu_busy_percent": ("busy", "NVML: time in which a kernel of any program ran", "%", 1.0),
    "gpu_sm_mhz": ("clock", "of its multiprocessors", "MHz", 1.0),
    "gpu_power_mw": ("power", "drawn", "W", 1e3),
    "gpu_memory_bytes": ("memory", "used by all programs", "GB", 1e9),
    "gpu_celsius": ("heat", "", "C", 1.0),
}
_TOPS: Final = {"gpu_sm_mhz": "gpu_sm_max_mhz", "gpu_power_mw": "gpu_power_limit_mw"}
_HELD: Final = {"heat": "heat", "power_brake": "its power supply", "power_cap": "its power limit"}
_FULL: Final = 0.9  # of a second: a CPU is in full use
_IDLE: Final = 0.2  # the mean of all others: they are nearly idle
_INTERRUPTS: Final = 0.1  # of a CPU's time: worth a row
_FEWEST: Final = 5  # readings that say which CPUs work
_SHOWN: Final = {"%": 1.0, "MB/s": 0.1, "/s": 1.0}  # in its highest second: less is noise


@dataclass(frozen=True, slots=True)
class Series:
    """One number over the run."""

    name: str
    words: str
    unit: str  # "CPUs", "GB", "", "ms/s", "%", "MB/s", "/s", "MHz", "W", "C"
    values: tuple[float, ...]
    top: float  # of its picture

    @property
    def mean(self) -> float:
        return sum(self.values) / len(self.values)


@dataclass(frozen=True, slots=True)
class CpuLane:
    """Which of the CPUs that a run may use worked when, for anybody."""

    numbers: tuple[int, ...]
    shares: Float64Array  # (CPUs, readings but the first): of the second before, 0 to 1

    @property
    def words(self) -> str:
        """ "CPUs 0 to 3 and 8"."""
        spans = [[n for _, n in of] for _, of in groupby(enumerate(self.numbers), lambda at: at[1] - at[0])]
        return f"CPUs {Names(f'{of[0]} to {of[-1]}' if len(of) > 1 else str(of[0]) for of in spans)}"


@dataclass(frozen=True, slots=True)
class Host:
    readings: int
    seconds: float
    series: tuple[Series, ...]
    numa: str = ""  # where CPUs, memory and GPUs are; of a machine with several nodes
    lone: str = ""  # that one CPU worked and the others did not, where it was so for half of the time or more
    lane: CpuLane | None = None  # None: one CPU, or too few readings


def host(run: Run) -> Host:
    readings = run.host
    pairs = [(a, b) for a, b in pairwise(readings) if b.at_ns > a.at_ns]
    seconds = (readings[-1].at_ns - readings[0].at_ns) / 1e9 if readings else 0.0
    if not pairs:
        return Host(len(readings), seconds, (), _numa(run))

    def rate(field: str) -> list[float]:
        return [max(0, getattr(b, field) - getattr(a, field)) / (b.at_ns - a.at_ns) for a, b in pairs]

    process, busy, idle = rate("process_cpu_ns"), rate("machine_busy_ns"), rate("machine_idle_ns")
    all_cpus = max((b + i for b, i in zip(busy, idle, strict=True)), default=0.0)
    series = [
        _series("this process", "CPUs that it used, all threads", "CPUs", process, all_cpus),
        _series("the machine", "CPUs in use by all programs", "CPUs", busy, all_cpus),
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
    lane = _cpu_lane(run)
    lone, each = _cpus(run, lane) if lane is not None else ("", [])
    return Host(len(readings), seconds, (*series, *each, *_machine(run), *_gpus(run)), _numa(run), lone, lane)


def _numa(run: Run) -> str:
    told: Any = described(run.meta, "process_settings").get("numa")
    cpus_of, memory = (_by_node(told, what) for what in ("cpus", "memory"))
    if not cpus_of:
        return ""
    nodes = len(told["cpus"])
    parts = [f"{nodes} NUMA nodes; CPUs of " + ", ".join(f"node {node} ({n})" for node, n in cpus_of.items())]
    if whole := sum(memory.values()):
        shares = {node: held / whole for node, held in memory.items() if held / whole >= 0.01}
        parts.append(
            "memory of its cgroup " + ", ".join(f"{share:.0%} on node {node}" for node, share in shares.items())
        )
    for device in run.devices:
        if (at := device.description.get("numa_node")) is not None:
            far = ", of whose CPUs this run may use none: its copies go through another node"
            parts.append(f"GPU {device.id} on node {at}{'' if str(at) in cpus_of else far}")
    return "; ".join(parts)


def _by_node(told: Any, what: str) -> dict[str, int]:
    """Those with any."""
    found = told.get(what) if isinstance(told, dict) else None
    return {node: n for node, of in found.items() if (n := count(of))} if isinstance(found, dict) else {}


def _cpu_lane(run: Run, kind: str = "cpu") -> CpuLane | None:
    room = cpus.in_force(run)
    usable = room.cpus if room is not None else frozenset[int]()
    words = {key: values for key, values in run.machine.items() if key.startswith(f"{kind}_levels:")}
    numbers, shares = [], []
    for key, values in words.items():
        for i in range(16):
            number = int(key.partition(":")[2]) + i
            levels = (values.astype(np.uint64)[1:] >> np.uint64(4 * i)) & np.uint64(15)
            if levels.all() and len(levels) and (not usable or number in usable):  # 0: it was not there
                numbers.append(number)
                shares.append((levels - 1.0) / 14)
    return CpuLane(tuple(numbers), np.array(shares, dtype=np.float64)) if len(numbers) > 1 else None


def _cpus(run: Run, lane: CpuLane) -> tuple[str, list[Series]]:
    numbers, busy = lane.numbers, lane.shares
    means, full = busy.mean(axis=1), busy >= _FULL
    busiest = int(means.argmax())
    series = [
        _series(
            "busiest CPU", f"CPU {numbers[busiest]}, in use by all programs", "%", (100 * busy[busiest]).tolist(), 100
        ),
        _series(
            "CPUs in full use", f"of {len(numbers)} that this run may use", "", full.sum(axis=0).tolist(), len(numbers)
        ),
    ]
    if (irq := _cpu_lane(run, "irq")) is not None:
        most = int(irq.shares.mean(axis=1).argmax())
        if irq.shares[most].mean() >= _INTERRUPTS:
            words = f"time that they take of CPU {irq.numbers[most]}"
            series.append(_series("interrupts", words, "%", (100 * irq.shares[most]).tolist(), 100))
    others = (busy.sum(axis=0) - busy.max(axis=0)) / (len(numbers) - 1)
    lone = (full.sum(axis=0) == 1) & (others <= _IDLE)
    if len(lone) < _FEWEST or lone.mean() < 0.5:
        return "", series
    which = Counter(busy[:, lone].argmax(axis=0).tolist()).most_common(1)[0][0]
    rest = "the other one" if len(numbers) == 2 else f"the other {len(numbers) - 1}"
    were = "was" if len(numbers) == 2 else "were"
    return (
        f"In {lone.mean():.0%} of the seconds one CPU (mostly CPU {numbers[which]}) was in full use, and {rest} that "
        f"this run may use {were} nearly idle.",
        series,
    )


def _machine(run: Run) -> Iterator[Series]:
    """Of what stood still all the time: nothing."""
    at = np.array([reading.at_ns for reading in run.host])
    later = np.diff(at) > 0
    seconds = np.diff(at)[later] / 1e9
    for counter, (name, words, unit, scale) in _COUNTERS.items():
        for key, so_far in run.machine.items():
            kind, _, device = key.partition(":")
            rates = np.maximum(np.diff(so_far)[later], 0) / seconds / scale
            if kind == counter and rates.max() >= _SHOWN.get(unit, 0.0):
                top = 100.0 if unit == "%" else 0.0
                yield _series(f"{name} {device}".strip(), words, unit, rates.tolist(), top)


def _gpus(run: Run) -> Iterator[Series]:
    """By device. Of one that NVML lost the last reading would stand for all later ones."""
    if (nvml := run.tiers.get("nvml")) is None or nvml.tier != "nvml":
        return
    ids = sorted({key.partition(":")[2] for key in run.machine if key.startswith("gpu_")})
    for id in ids:
        for gauge, (name, words, unit, scale) in _GAUGES.items():
            values = run.machine.get(f"{gauge}:{id}")
            if values is not None and values.any():
                most = run.machine.get(f"{_TOPS.get(gauge)}:{id}")
                top = 100.0 if unit == "%" else float(most.max()) / scale if most is not None else 0.0
                yield _series(f"GPU {id} {name}", words, unit, (values / scale).tolist(), top)
        if (reasons := run.machine.get(f"gpu_throttle_reasons:{id}")) is None:
            continue
        for what, bits in HELD_BY.items():
            held = np.where(reasons & bits, 100.0, 0.0)
            if held.any():
                yield _series(f"GPU {id} slowed", f"by {_HELD[what]}", "%", held.tolist(), 100.0)


def _series(name: str, words: str, unit: str, values: Sequence[float], top: float = 0.0) -> Series:
    return Series(name, words, unit, tuple(values), max(top, *values, 1e-9) if values else 1.0)
