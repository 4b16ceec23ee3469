"""Which CPUs a run may use, when that changed and by whom; and who used them, from the readings of the host."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.runfile import RunReader

# Of a worker's life, before its first reading and after its last, at most: there is a reading a second, or several.
_UNREAD_S = 2.0


@dataclass(frozen=True, slots=True)
class CpuUse:
    """In CPUs, over the whole watch."""

    own: float  # this process and its loaders' workers
    workers: float  # of it
    others: float  # neither this process nor any that it started, on all of the machine's CPUs
    children: float = 0.0  # processes that it started, beside the workers
    elsewhere: int = 0  # CPUs of the machine that this process may not run on: there others are in nobody's way


def used_beside(run: RunReader, stretches: Sequence[tuple[int, int]]) -> float | None:
    """CPUs that all processes but this one used, its workers and children among them: in the mean of these stretches,
    each from one time to another, in ns. None where they are not within the readings, which are a second apart."""
    host = run.host
    if len(host) < 2:
        return None
    at = [h.at_ns for h in host]
    used = [h.machine_busy_ns - h.process_cpu_ns for h in host]
    within = [(max(a, at[0]), min(b, at[-1])) for a, b in stretches]
    wall = sum(b - a for a, b in within if b > a)
    if wall < 0.5 * sum(b - a for a, b in stretches) or wall <= 0:
        return None
    return float(sum(np.interp(b, at, used) - np.interp(a, at, used) for a, b in within if b > a)) / wall


def usable_cpus(run: RunReader) -> int:
    """CPUs that the process and its workers may run on, in most of its steps; 0 when it is not known."""
    if found := used_cpus(run):
        return found
    text = run.meta.get("cpus", "")
    return int(text) if text.isdigit() else 0


def cpu_use(run: RunReader) -> CpuUse | None:
    """None: there are no two readings, or they are of a small part of a short watch."""
    host = run.host
    if len(host) < 2:
        return None
    first, last = host[0], host[-1]
    wall = last.at_ns - first.at_ns
    if wall <= 0 or wall < min(0.5 * run.watched_ns, limit("host_readings_s") * 1e9):
        return None
    seen = [worker for loader in run.loaders.values() for worker in loader.workers]
    workers = sum(w.cpu_seconds * 1e9 / wall for w in seen)
    # Of a watch, not from reading to reading; 0: a run that was killed, or of an older version.
    before, after = (int(run.meta.get(f"children_cpu_{when}_ns") or 0) for when in ("before", "after"))
    unread = max(0.0, (after - before) / run.watched_ns - workers) if run.watched_ns else 0.0
    of_each = [min(_UNREAD_S, max(0.0, run.watched_ns / 1e9 - w.seconds)) for w in seen]
    of_workers = min(unread, sum(of_each) * 1e9 / wall)
    workers += of_workers
    own = (last.process_cpu_ns - first.process_cpu_ns) / wall + workers
    rest = max(0.0, (last.machine_busy_ns - first.machine_busy_ns) / wall - own)
    children = min(rest, unread - of_workers)
    usable = usable_cpus(run)
    machine = last.machine_busy_ns - first.machine_busy_ns + last.machine_idle_ns - first.machine_idle_ns
    elsewhere = max(0, round(machine / wall) - usable) if usable else 0
    return CpuUse(own, workers, rest - children, children, elsewhere)


# -- which it may use

_LATEST_NS = 1_500_000_000  # from a call to the reading that shows it: they are a fifth of a second apart, or more


@dataclass(frozen=True, slots=True)
class Room:
    """From `at_ns` on."""

    at_ns: int
    who: int  # 0: the step thread; else a worker's process
    cpus: frozenset[int]
    quota: float  # CPUs' worth of time; 0: none


@dataclass(frozen=True, slots=True)
class Call:
    """A call of os.sched_setaffinity for this process or one of its threads."""

    at_ns: int
    file: str
    line: int
    function: str
    count: int


@dataclass(frozen=True, slots=True)
class Narrowed:
    """The step thread may run on fewer CPUs than it could."""

    cpus: frozenset[int]
    possible: int
    during: bool  # while it was watched
    at_ns: int  # when; the first reading, where it was so before
    call: Call | None  # that did it; None: not known
    workers_too: bool  # every worker that was seen is on these CPUs as well


@dataclass(frozen=True, slots=True)
class Quota:
    """What the container allows."""

    cpus: float  # CPUs' worth of time
    at_ns: int  # since when
    before: float | None  # the one before it, 0 for none; None: it was so from the beginning


def rooms(run: RunReader) -> Sequence[Room]:
    return [
        Room(at, who, _numbers(cpus), max(0, quota) / 1000)
        for at, who, _, cpus, quota in _rows(run, "cpu_room", (int, int, int, str, int))
    ]


def calls(run: RunReader) -> Sequence[Call]:
    return [Call(*row) for row in _rows(run, "affinity_calls", (int, str, int, str, int))]


def possible_cpus(run: RunReader) -> int:
    """To which the process could widen its affinity: its cpuset's, or the machine's; 0: not known."""
    text = run.meta.get("cpus_possible", "")
    return int(text) if text.isdigit() else 0


def in_force(run: RunReader) -> Room | None:
    """The step thread's for most of the steps' time."""
    return _longest(run, lambda room: room.cpus)


def quota(run: RunReader) -> Quota | None:
    """Of the container, for most of the steps' time; None: no quota, or none that can be read."""
    room = _longest(run, lambda room: room.quota)
    own = [r for r in rooms(run) if r.who == 0]
    if room is None or not any(r.quota for r in own):
        at_start = run.meta.get("cpu_quota", "")
        return Quota(float(at_start), 0, None) if re.fullmatch(r"\d+(\.\d+)?", at_start) else None
    before = [r for r in own if r.at_ns < room.at_ns]
    # The first reading of the CPUs comes just before that of the quota.
    changed = len(before) > 1 or bool(before and before[0].quota)
    return Quota(room.quota, room.at_ns, before[-1].quota if changed else None) if room.quota else None


def _longest(run: RunReader, of: Callable[[Room], Hashable]) -> Room | None:
    """The first of the step thread's rooms with what was so for most of the steps' time."""
    own = [room for room in rooms(run) if room.who == 0]
    if not own:
        return None
    table = run.steps
    start, end = (int(table.start_ns[0]), int(table.start_ns[-1] + table.wall_ns[-1])) if len(table.count) else (0, 0)
    ends = [*(room.at_ns for room in own[1:]), end]
    held: dict[Hashable, int] = {}
    for room, until in zip(own, ends, strict=True):
        held[of(room)] = held.get(of(room), 0) + max(0, min(until, end) - max(room.at_ns, start))
    most = max(held, key=lambda value: held[value])
    return next(room for room in own if of(room) == most) if any(held.values()) else own[-1]


def used_cpus(run: RunReader) -> int:
    """That the step thread or its workers may run on, in most of the steps' time; 0: not known."""
    room = in_force(run)
    if room is None:
        return 0
    return len(room.cpus.union(*(r.cpus for r in rooms(run) if r.who)))


def workers_cpus(run: RunReader) -> frozenset[int]:
    """That all workers together may run on, by each one's last reading; empty: not known."""
    last = {room.who: room.cpus for room in rooms(run) if room.who}
    return frozenset().union(*last.values())


def narrowed(run: RunReader) -> Narrowed | None:
    """None: it may use all that it could, or that is not known."""
    room, possible = in_force(run), possible_cpus(run)
    if (allowed := quota(run)) is not None:
        possible = min(possible, max(1, math.ceil(allowed.cpus)))  # a wider affinity gets no more time than that
    if room is None or not room.cpus or len(room.cpus) >= possible:
        return None
    all_rooms = rooms(run)
    before = [r for r in all_rooms if r.who == 0 and r.at_ns < room.at_ns]
    call = _call_of(room, calls(run))
    workers = [r for r in all_rooms if r.who]
    return Narrowed(
        cpus=room.cpus,
        possible=possible,
        during=call is not None or (bool(before) and len(before[-1].cpus) > len(room.cpus)),
        at_ns=call.at_ns if call is not None else room.at_ns,
        call=call,
        workers_too=all(r.cpus <= room.cpus for r in workers),
    )


def steps_before(run: RunReader, at_ns: int) -> int:
    table = run.steps
    row = int(np.searchsorted(table.start_ns, at_ns))
    return int(table.count[:row].sum())


def _call_of(room: Room, made: Sequence[Call]) -> Call | None:
    own = (c for c in made if c.count == len(room.cpus) and c.at_ns <= room.at_ns <= c.at_ns + _LATEST_NS)
    return max(own, key=lambda c: c.at_ns, default=None)


def _numbers(text: str) -> frozenset[int]:
    """Of "0-3,8"."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if first.isdigit() and (last or first).isdigit():
            found.update(range(int(first), min(int(last or first), int(first) + 8192) + 1))
    return frozenset(found)


def _rows(run: RunReader, key: str, types: Iterable[type]) -> Sequence[list[Any]]:
    """Those of the list that are well-formed."""
    kinds = list(types)
    try:
        found = json.loads(run.meta.get(key, "[]"))
    except (ValueError, RecursionError):
        return []
    rows = found if isinstance(found, list) else []
    return [row for row in rows if isinstance(row, list) and list(map(type, row)) == kinds]
