"""What a run has of each GPU's memory as PyTorch's allocator counts it (hooks/device_memory.py), and what it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from trainperf.findings.messages import TEXTS
from trainperf.findings.model import Params
from trainperf.findings.text import Bytes, Count, fill
from trainperf.findings.thresholds import limit
from trainperf.findings.trends import Trend, trend
from trainperf.runfile import HAS_VALIDATION, WARM_UP
from trainperf.runfile.schema import count, described

if TYPE_CHECKING:
    from trainperf.findings.cpus import Floats
    from trainperf.runfile import RunReader

_MOST_DEVICES, _MOST_READINGS, _MOST_RISES = 64, 256, 64
_MOST = 1 << 60  # of a number


class Reading(NamedTuple):
    at_ns: int
    allocated: int
    reserved: int
    active: int
    inactive_split: int
    segments: int
    retries: int  # of this process so far, as are ooms
    ooms: int


class Rise(NamedTuple):
    """A peak rose between two readings."""

    after_ns: int
    by_ns: int
    allocated: int
    reserved: int


class Stretch(NamedTuple):
    """Steps that a rise lies in."""

    first: int
    last: int
    flags: int

    @property
    def text(self) -> str:
        """ "steps 200 to 209, with validation"."""
        params = {"first": Count(self.first), "last": Count(self.last), "several": self.last > self.first}
        return fill(TEXTS["memory_steps"], {**params, "validation": bool(self.flags & HAS_VALIDATION)}, TEXTS)


Cache = Literal["needed", "validation", "fragmented", "cache"]


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    id: int
    total: int  # that the GPU has; 0: not known
    peak_allocated: int
    peak_reserved: int
    readings: tuple[Reading, ...]  # in order of time, one at least; the last is of the watch's end
    rose: Stretch | None  # where the allocated peak rose last; None: in no step that is known
    later: tuple[Reading, ...]  # those in the steps, without their first quarter; () where there are too few
    growth: Trend | None  # of the allocated bytes of these; None: too few
    per_step: float  # what it rises by in a step; 0: it does not rise steadily
    cache: Cache  # what is reserved beyond the allocated peak, or why the peak is what it is
    of_validation: tuple[Stretch, int] | None  # where most of what validations reserved was, and how much that is

    @property
    def last(self) -> Reading:
        return self.readings[-1]

    @property
    def later_bytes(self) -> Floats:
        return _allocated(self.later)

    @property
    def over_the_run(self) -> dict[str, list[float]]:
        """In GB."""
        return {what: [getattr(reading, what) / 1e9 for reading in self.readings] for what in ("allocated", "reserved")}

    @property
    def of_cache(self) -> str:
        """What the reserved memory is, in one sentence."""
        stretch, reserved = self.of_validation or (None, 0)
        return fill(
            TEXTS[f"memory_{self.cache}"],
            {
                "spare": Bytes(self.peak_reserved - self.peak_allocated),
                "reserved": Bytes(reserved),
                "steps_of_it": stretch.text if stretch is not None else None,
            },
            TEXTS,
        )

    @property
    def counted(self) -> str:
        """All of it in one line."""
        settled = self.growth is not None and not self.per_step
        params: Params = {
            "allocated": Bytes(self.peak_allocated),
            "reserved": Bytes(self.peak_reserved),
            "rose": self.rose.text if self.rose is not None else None,
            "each": Bytes(self.per_step) if self.per_step else None,
            "settled": settled,
            "retries": Count(self.last.retries) if self.last.retries else None,
            "ooms": Count(self.last.ooms) if self.last.ooms else None,
        }
        return f"{fill(TEXTS['memory_counted'], params, TEXTS)}; {self.of_cache}"


def devices_memory(run: RunReader) -> tuple[DeviceMemory, ...]:
    """By device; () where nothing was read."""
    found = []
    for id, told in list(described(run.meta, "device_memory").items())[:_MOST_DEVICES]:
        if isinstance(told, dict) and id.isdecimal() and len(id) < 4:
            peaks = _rows([told.get("peaks")], 2)
            readings = [Reading(*row) for row in _rows(told.get("readings"), len(Reading._fields))[:_MOST_READINGS]]
            rises = [Rise(*row) for row in _rows(told.get("rises"), len(Rise._fields))[:_MOST_RISES]]
            if peaks and readings:
                memory = _memory(run, int(id), peaks[0], readings, rises)
                found.append(replace(memory, total=count(told.get("total"))))
    return tuple(sorted(found, key=lambda memory: memory.id))


def _rows(rows: object, length: int) -> list[list[int]]:
    """Those that a file should have; [] where one is otherwise."""
    found: list[Any] = rows if isinstance(rows, list) else []
    for row in found:
        if not isinstance(row, list) or len(row) != length:
            return []
        if not all(type(number) is int and 0 <= number < _MOST for number in row):
            return []
    return found


def _memory(
    run: RunReader, id: int, peaks: Sequence[int], readings: Sequence[Reading], rises: Sequence[Rise]
) -> DeviceMemory:
    allocated, reserved = peaks
    spare = reserved - allocated
    rose = next((rise for rise in reversed(rises) if rise.allocated), None)
    later = _later(run, readings)
    seconds = np.array([(reading.at_ns - later[0].at_ns) / 1e9 for reading in later])
    growth = trend(seconds, _allocated(later)) if later else None
    step_s = float(run.wall_ns) / max(1, int(run.step_count)) / 1e9
    of_validation = _of_validation(run, rises)
    late = readings[len(readings) // 2 :]
    split = float(np.median([reading.inactive_split for reading in late]))
    cache: Cache = "cache"
    if of_validation is not None and of_validation[1] >= limit("device_spare_share") * reserved:
        cache = "validation"
    elif spare < limit("device_spare_share") * reserved:
        cache = "needed"
    elif split >= limit("half_share") * spare:
        cache = "fragmented"
    return DeviceMemory(
        id=id,
        total=0,
        peak_allocated=allocated,
        peak_reserved=reserved,
        readings=tuple(readings),
        rose=_stretch(run, rose) if rose is not None else None,
        later=later,
        growth=growth,
        per_step=growth.per_second * step_s if growth is not None and growth.steady else 0.0,
        cache=cache,
        of_validation=of_validation if cache == "validation" else None,
    )


def _later(run: RunReader, readings: Sequence[Reading]) -> tuple[Reading, ...]:
    table = run.steps
    if not len(table.start_ns):
        return ()
    start, end = int(table.start_ns[0]), int(table.start_ns[-1] + table.wall_ns[-1])
    within = [reading for reading in readings if start <= reading.at_ns <= end]
    return tuple(within[len(within) // 4 :]) if len(within) >= limit("memory_min_readings") else ()


def _allocated(readings: Sequence[Reading]) -> Floats:
    return np.array([float(reading.allocated) for reading in readings])


def _of_validation(run: RunReader, rises: Sequence[Rise]) -> tuple[Stretch, int] | None:
    """Of the peaks' rises in steps with validation, but not of the first ones, in which all memory is taken."""
    found = [(stretch, rise.reserved) for rise in rises if rise.after_ns and (stretch := _stretch(run, rise))]
    of_validation = [of for of in found if of[0].flags & (HAS_VALIDATION | WARM_UP) == HAS_VALIDATION]
    return max(of_validation, key=lambda of: of[1], default=None)


def _stretch(run: RunReader, rise: Rise) -> Stretch | None:
    table = run.steps
    rows = np.flatnonzero((table.start_ns < rise.by_ns) & (table.start_ns + table.wall_ns > rise.after_ns))
    if not len(rows):
        return None
    one_by_one = int(table.count[rows].max()) == 1  # else a flag may be of a step that had no part in it
    flags = int(np.bitwise_or.reduce(table.flags[rows])) if one_by_one else 0
    return Stretch(int(table.index[rows[0]]), int(table.index[rows[-1]] + table.count[rows[-1]] - 1), flags)
