"""The longest steps, each with its own timeline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trainperf.report.json import FLAGS
from trainperf.runfile.schema import CAUSES, cause_of

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.run import Run
    from trainperf.runfile import Segment

SHOWN: Final = 8
_DEVICES: Final = 8  # lanes of a step
_FLAG_WORDS: Final = {
    "data_starved": "data-starved",
    "gil_contended": "GIL-contended",
    "host_stalled": "host-stalled",
    "incomplete": "events were dropped",
    "warm_up": "warm-up",
    "has_validation": "validation",
    "has_checkpoint": "checkpoint",
    "has_loader_start": "the loader started",
}


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a step's own time, in shares of the step."""

    start: float
    end: float
    what: str  # a phase; a mechanism; what a device did
    who: str  # the holder of the GIL; a kernel's name; else ""
    ms: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Waits for the GIL within a step, by holder and place."""

    holder: str
    place: str
    ms: float
    count: int


@dataclass(frozen=True, slots=True)
class WorstStep:
    index: int
    why: str  # "worst", or what it was kept for
    wall_ms: float
    ratio: float | None  # to the median
    causes: tuple[tuple[str, float, float], ...]  # name, ms, share; costliest first, all that are not 0
    flags: tuple[str, ...]
    phases: tuple[Piece, ...]
    waits: tuple[Piece, ...]  # for the GIL; what else has a cause of its own
    devices: tuple[tuple[str, tuple[Piece, ...]], ...]  # name -> what it did, and why it idled
    devices_left_out: int
    held: tuple[Wait, ...]


def worst_steps(run: Run, facts: Facts, median_ms: float | None) -> tuple[WorstStep, ...]:
    """The longest first. Where only warm-up steps were seen: these."""
    table = run.kept_steps
    rows = {int(step): row for row, step in enumerate(table.index.tolist())}
    chosen = [step for step in run.worst_steps if step in rows][:SHOWN] or list(rows)[:SHOWN]
    unsplit = run.judged.unsplit
    out = []
    for step in chosen:
        row = rows[step]
        wall, start = int(table.wall_ns[row]), int(table.start_ns[row])
        by_cause = dict(zip(CAUSES, table.causes_ns[row].tolist(), strict=True))
        if unsplit is not None:
            by_cause[unsplit.name] = sum(by_cause.pop(cause) for cause in unsplit.causes)
        causes = sorted(((name, ns / 1e6, ns / wall) for name, ns in by_cause.items() if ns), key=lambda c: -c[1])
        flags = int(table.flags[row])
        segments = run.segments(step)
        lanes = _devices(run, step, start, wall)
        out.append(
            WorstStep(
                index=step,
                why="worst" if step in run.worst_steps else "kept",
                wall_ms=wall / 1e6,
                ratio=wall / 1e6 / median_ms if median_ms else None,
                causes=tuple(causes),
                flags=tuple(_FLAG_WORDS[name] for bit, name in enumerate(FLAGS) if flags >> bit & 1),
                phases=_phases(segments, start, wall),
                waits=_waits(segments, start, wall, facts),
                devices=lanes[:_DEVICES],
                devices_left_out=max(0, len(lanes) - _DEVICES),
                held=_held(run, segments, facts),
            )
        )
    return tuple(out)


def _phases(segments: Sequence[Segment], start: int, wall: int) -> tuple[Piece, ...]:
    """Neighbours of one phase are one piece."""
    out: list[Piece] = []
    for s in segments:
        a, b = _share(s.start_ns, start, wall), _share(s.end_ns, start, wall)
        if out and out[-1].what == s.phase and abs(out[-1].end - a) < 1e-6:
            last = out.pop()
            out.append(Piece(last.start, b, s.phase, "", last.ms + (s.end_ns - s.start_ns) / 1e6))
        else:
            out.append(Piece(a, b, s.phase, "", (s.end_ns - s.start_ns) / 1e6))
    return tuple(out)


def _waits(segments: Sequence[Segment], start: int, wall: int, facts: Facts) -> tuple[Piece, ...]:
    """By cause, as far as it is known piece by piece: of a watch waits for the GIL and collections, of a trace more."""
    feeds = facts.run.feeds_device
    return tuple(
        Piece(
            _share(s.start_ns, start, wall),
            _share(s.end_ns, start, wall),
            cause_of(s.phase, s.mechanism, feeds_device=feeds),
            facts.thread_name(s.thread) if s.mechanism in ("gil_wait", "stop_the_world") else "",
            (s.end_ns - s.start_ns) / 1e6,
        )
        for s in segments
        if s.mechanism != "unknown"
    )


def _held(run: Run, segments: Sequence[Segment], facts: Facts) -> tuple[Wait, ...]:
    from trainperf.findings import frames

    sums: defaultdict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0])
    for s in segments:
        if s.mechanism == "gil_wait":
            at = frames.shown_frame(run.stack(s.stack))
            entry = sums[facts.thread_name(s.thread), frames.label(at, facts.base) if at else "place not known"]
            entry[0] += (s.end_ns - s.start_ns) / 1e6
            entry[1] += 1
    rows = [Wait(holder, place, ms, int(count)) for (holder, place), (ms, count) in sums.items()]
    return tuple(sorted(rows, key=lambda w: -w.ms)[:6])


def _devices(run: Run, step: int, start: int, wall: int) -> tuple[tuple[str, tuple[Piece, ...]], ...]:
    names = {device.id: device.name for device in run.devices}
    lanes: defaultdict[int, list[Piece]] = defaultdict(list)
    for s in run.device_segments(step) if names else ():
        a, b = _share(s.start_ns, start, wall), _share(s.end_ns, start, wall)
        if b > a:
            lanes[s.device].append(
                Piece(a, b, s.cause if s.what == "idle" else s.what, s.name, (s.end_ns - s.start_ns) / 1e6)
            )
    return tuple((f"GPU {id}" if len(lanes) > 1 else "GPU", tuple(lanes[id])) for id in sorted(lanes))


def _share(at: int, start: int, wall: int) -> float:
    return min(1.0, max(0.0, (at - start) / wall)) if wall else 0.0
