"""Which CPUs the training process may run on, when that changed, and who changed it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from trainperf.runfile import RunReader

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
