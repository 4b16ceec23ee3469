"""The DataLoaders: what the loop waited for, what was ready when it asked, and what the workers did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trainperf.findings import frames
from trainperf.findings import loaders as of
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.run import Run
    from trainperf.runfile import Loader

SHOWN: Final = 6
_WORKERS: Final = 16
_LINES: Final = 10
_ACTIVITIES: Final[dict[of.Activity, str]] = {
    "samples": "fetch of samples",
    "transforms": "transforms",
    "collate": "collate",
    "shared memory": "copy into shared memory",
    "queue": "hand-over to the queue",
    "idle": "idle",
    "other": "other",
}
_STATES: Final = {"R": "running", "S": "sleeping", "D": "waiting for a disk", "T": "stopped", "Z": "ended", "?": "gone"}


@dataclass(frozen=True, slots=True)
class WorkerRow:
    pid: int
    cpu_share: float | None
    seconds: float
    states: tuple[tuple[str, float], ...]  # words, share of readings; most often first


@dataclass(frozen=True, slots=True)
class InsideRow:
    """A line that workers spend time in."""

    share: float  # of the samples
    activity: str
    place: str  # "Data.__getitem__ (data.py:88)"
    calls: str
    spent: str  # "waiting for a file 60%, CPU 40%"


@dataclass(frozen=True, slots=True)
class InsidePanel:
    samples: int
    activities: tuple[tuple[str, float], ...]  # words, share of the samples; largest first
    rows: tuple[InsideRow, ...]


@dataclass(frozen=True, slots=True)
class LoaderPanel:
    id: int
    name: str
    place: str  # where the dataset reads
    settings: tuple[tuple[str, str], ...]
    fetches: int
    mean_ms: float
    max_ms: float
    wait_ms: float  # all of these fetches
    cpu_ms: float  # of them on the CPU: loading (no workers), or unpacking what a worker sent
    gil_ms: float
    blocked_ms: float
    first: int
    first_mean_ms: float
    validation: int
    off_thread: int
    ready: tuple[tuple[int, int, float], ...]  # batches ready when asked (-1: not known), fetches, mean ms
    starved: float | None  # share of the fetches that found none; None: not known
    workers: tuple[WorkerRow, ...]
    workers_left_out: int
    inside: InsidePanel | None  # None: too few samples
    in_process: bool


def loader_panels(run: Run, facts: Facts) -> tuple[tuple[LoaderPanel, ...], int]:
    """The ones most waited for, and how many more there are."""
    used = [found for found in run.loaders.values() if _count(found)]
    used.sort(key=lambda found: -found.fetches.wall_ns)
    return tuple(_panel(found, facts) for found in used[:SHOWN]), max(0, len(used) - SHOWN)


def _count(loader: Loader) -> int:
    f = loader.fetches
    return f.count + f.first_count + f.validation_count + f.off_thread_count


def _panel(loader: Loader, facts: Facts) -> LoaderPanel:
    f = loader.fetches
    known = {ready: n for ready, n in f.ready.items() if ready >= 0}
    wait, cpu, gil = f.wall_ns / 1e6, f.cpu_ns / 1e6, f.gil_wait_ns / 1e6
    return LoaderPanel(
        id=loader.id,
        name=of.dataset_name(loader) if loader.id else "all other loaders",
        place=of.dataset_place(loader, facts),
        settings=_settings(loader.description),
        fetches=f.count,
        mean_ms=wait / f.count if f.count else 0.0,
        max_ms=f.max_ns / 1e6,
        wait_ms=wait,
        cpu_ms=cpu,
        gil_ms=gil,
        blocked_ms=max(0.0, wait - cpu - gil),
        first=f.first_count,
        first_mean_ms=f.first_wall_ns / f.first_count / 1e6 if f.first_count else 0.0,
        validation=f.validation_count,
        off_thread=f.off_thread_count,
        ready=tuple(
            (ready, f.ready[ready], f.ready_wall_ns.get(ready, 0) / f.ready[ready] / 1e6)
            for ready in sorted(known)
            if f.ready[ready]
        ),
        starved=known.get(0, 0) / sum(known.values()) if sum(known.values()) else None,
        workers=tuple(WorkerRow(w.pid, w.cpu_share, w.seconds, _states(w.states)) for w in loader.workers[:_WORKERS]),
        workers_left_out=max(0, len(loader.workers) - _WORKERS),
        inside=_inside(loader, facts),
        in_process=of.num_workers(loader) == 0 and not loader.workers,
    )


def _inside(loader: Loader, facts: Facts) -> InsidePanel | None:
    found = of.inside(facts, [loader])
    if not found.told:
        return None
    return InsidePanel(
        samples=found.samples,
        activities=tuple(
            (_ACTIVITIES[a], n / found.samples)
            for a, n in found.activities.most_common()
            if n >= limit("show_share") * found.samples
        ),
        rows=tuple(
            InsideRow(
                share=line.count / found.samples,
                activity=_ACTIVITIES[line.activity],
                place=frames.label(line.frame, facts.base),
                calls=line.calls,
                spent=line.spent(),
            )
            for line in found.lines[:_LINES]
            if line.count >= limit("show_share") * found.samples
        ),
    )


def _states(states: Mapping[str, int]) -> tuple[tuple[str, float], ...]:
    whole = sum(states.values()) or 1
    return tuple(
        (_STATES.get(state, state), n / whole) for state, n in sorted(states.items(), key=lambda s: -s[1]) if n
    )


def _settings(description: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    names = ("num_workers", "batch_size", "persistent_workers", "pin_memory", "prefetch_factor", "sampler")
    return tuple((name, str(description[name])) for name in names if description.get(name) is not None)
