"""Whether a series of readings rises, and a phase of the steps with the number of steps done: how much, and where."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trainperf.findings.frames import function_of
from trainperf.findings.thresholds import limit
from trainperf.findings.vocabulary import MACHINE, MECHANISMS, PHASES
from trainperf.runfile import WARM_UP

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.model import Cell
    from trainperf.findings.places import Spot
    from trainperf.runfile import Detail, Section

_BINS, _FEWEST = 24, 10
_FELT = 0.05  # of the run's time: a phase that may be compared with another
_MODEL = ("forward", "backward")

_MOST = 256  # readings that are looked at: all pairs of them are compared

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Growth:
    phase: str
    first_ns: float  # per step: the level that it starts from, and the last one
    last_ns: float
    per_step_ns: float  # the mean rise
    thirds_ns: tuple[float, float, float]
    excess_ns: int  # of the whole run, above the first level
    bends: bool  # its last third rises much faster than its first
    claims: dict[Cell, int]  # the excess, in the cells that grew
    steps: int  # that the first and the last level are measured in, each

    @property
    def by_work(self) -> bool:
        """Most of it is work in tensors, not Python and not a wait."""
        native = sum(ns for (_, mechanism), ns in self.claims.items() if mechanism not in ("python", "gc", "blocked"))
        return native >= limit("half_share") * self.excess_ns


@dataclass(frozen=True, slots=True)
class Grown:
    """All phases that grow, the costliest first."""

    phases: tuple[Growth, ...]
    inputs: bool  # forward and backward grow alike, in native work: so they do with larger inputs

    @property
    def excess_ns(self) -> int:
        return sum(g.excess_ns for g in self.phases)


@dataclass(frozen=True, slots=True)
class _Table:
    """The run's sections, without those that warm up or compile."""

    steps: Floats  # of each section
    ns: Floats  # (sections, phases), without what the machine made the thread wait

    def levels(self, phase: int, *, mean: bool = False) -> Floats:
        """Of up to 24 equal parts of the run, per step."""
        each = self.ns[:, phase] / self.steps
        parts = np.array_split(each, min(_BINS, max(len(each) // 2, min(len(each), _FEWEST))))
        return np.array([np.mean(part) if mean else np.median(part) for part in parts])


def grown(facts: Facts) -> Grown | None:
    """None: no phase grows, or there are too few steps."""
    if facts.steps < limit("growth_min_steps"):
        return None
    table = _sections(facts)
    if table is None:
        return None
    found = []
    for i, phase in enumerate(PHASES):
        if table.ns[:, i].sum() >= limit("least_share") * facts.wall_ns:
            growth = _growth(facts, table, phase)
            if growth is not None:
                found.append(growth)
    found.sort(key=lambda g: -g.excess_ns)
    drift = _drift(table, {g.phase for g in found})
    found = [g for g in found if g.last_ns >= limit("growth_ratio") * drift * g.first_ns]
    return Grown(tuple(found), _like_inputs(facts, table, found)) if found else None


def _sections(facts: Facts) -> _Table | None:
    table = facts.run.steps
    others = (table.count == 1) & (((table.flags & WARM_UP) != 0) | (table.compile_ns > 0))
    left_out = table.index[others]
    of_loop = [m not in MACHINE for m in MECHANISMS]
    kept = [
        s
        for s in facts.run.sections
        if s.steps > 0 and not ((left_out >= s.first_step) & (left_out < s.first_step + s.steps)).any()
    ]
    if len(kept) < _FEWEST:
        return None
    ns = np.array([s.matrix_ns[:, of_loop].sum(axis=1) for s in kept], dtype=np.float64)
    return _Table(np.array([s.steps for s in kept], dtype=np.float64), ns)


def _ends(levels: Floats) -> tuple[float, float]:
    """The first level, and the last."""
    return float(levels[:2].min()), float(np.median(levels[-2:]))


def _growth(facts: Facts, table: _Table, phase: str) -> Growth | None:
    row = PHASES.index(phase)
    for mean in (False, True):  # of what only some of the steps do, medians are zero
        levels = table.levels(row, mean=mean)
        if still_rises(levels):
            break
    else:
        return None
    first, last = _ends(levels)
    excess = int((table.ns[:, row] - first * table.steps).sum())
    claims = _claims(facts, phase, excess)
    if excess <= 0 or not claims:
        return None
    thirds = tuple(float(np.mean(part)) for part in np.array_split(levels, 3))
    size = max(1, len(levels) // 3)
    early, late = levels[size - 1] - levels[0], levels[-1] - levels[-size]
    steps = int(table.steps.sum())
    return Growth(
        phase=phase,
        first_ns=first,
        last_ns=last,
        per_step_ns=(last - first) / steps / (1 - 1.5 / len(levels)),  # from the middle of a part to that of another
        thirds_ns=(thirds[0], thirds[1], thirds[2]),
        excess_ns=excess,
        bends=bool(late > 2 * max(0.0, early)),
        claims=claims,
        steps=steps // len(levels),
    )


def _thirds(facts: Facts) -> tuple[list[Section], list[Section]]:
    """The sections of the run's first third, and of its last."""
    sections = [s for s in facts.run.sections if s.steps > 0]
    third = facts.steps / 3
    first = [s for s in sections if s.first_step + s.steps / 2 <= third]
    return first, [s for s in sections if s.first_step + s.steps / 2 >= 2 * third]


def _claims(facts: Facts, phase: str, excess_ns: int) -> dict[Cell, int]:
    """The excess, laid on the phase's cells as they grew from the first third to the last."""
    first, last = _thirds(facts)
    if not first or not last:
        return {}
    row = PHASES.index(phase)

    def per_step(sections: list[Section]) -> Floats:
        ns = np.sum([s.matrix_ns[row] for s in sections], axis=0, dtype=np.float64)
        return np.asarray(ns / sum(s.steps for s in sections), dtype=np.float64)

    of_loop = np.array([m not in MACHINE for m in MECHANISMS])
    rise = (per_step(last) - per_step(first)).clip(min=0) * of_loop
    whole = float(rise.sum())
    if not whole:
        return {}
    parts = {
        (phase, m): min(int(excess_ns * rise[i] / whole), facts.matrix[phase, m]) for i, m in enumerate(MECHANISMS)
    }
    return {cell: ns for cell, ns in parts.items() if ns > 0}


def _drift(table: _Table, growing: set[str]) -> float:
    """How much slower the phase that slows down least gets, of those that can be compared: so much slower the machine
    may have become. 1 where nothing can be compared."""
    whole = float(table.ns.sum())
    ratios = []
    for i, phase in enumerate(PHASES):
        if phase in ("validation", "checkpoint") or table.ns[:, i].sum() < _FELT * whole:
            continue
        before, after = _ends(table.levels(i))
        if before > 0:
            ratios.append((phase, after / before))
    still = [ratio for phase, ratio in ratios if phase not in growing]
    # One that grows by itself proves nothing of the machine: two that do, the lesser may.
    of = still or ([ratio for _, ratio in ratios] if len(ratios) > 1 else [])
    return max(1.0, min(of, default=1.0))


def _like_inputs(facts: Facts, table: _Table, found: list[Growth]) -> bool:
    if not facts.run.phase_ns("backward"):  # nothing to compare with
        return bool(found) and found[0].phase == "forward" and found[0].by_work
    model = [g for g in found if g.phase in _MODEL and g.by_work]
    # A phase that grows less may not rise clearly enough to be found.
    ends = [_ends(table.levels(PHASES.index(phase))) for phase in _MODEL]
    rises = [last - first for first, last in ends]
    alike = min(rises) >= limit("growth_of_inputs") * max(rises)
    # What grows outside the model may be due to the same inputs, unless it grows far more than the model.
    of_model = sum(g.excess_ns for g in model)
    return bool(model) and alike and of_model >= limit("growth_of_inputs") * sum(g.excess_ns for g in found)


def grown_spots(facts: Facts, phase: str) -> list[tuple[Spot, float]]:
    """The user's functions that take more of each step in the last third of the run than in the first, with the part
    of the rise that each has, the largest first; their time is that of the last third."""
    first, last = _thirds(facts)
    before, after = _by_section(facts, phase, first), _by_section(facts, phase, last)
    if sum(d.count for d in after) < limit("min_samples"):
        return []
    early = {function_of(s.frame): s.ns for s in facts.spots(before)}
    scale = sum(s.steps for s in last) / max(1, sum(s.steps for s in first))
    rises = [(s, s.ns - scale * early.get(function_of(s.frame), 0)) for s in facts.spots(after)]
    whole = sum(ns for _, ns in rises if ns > 0)
    return sorted(((s, ns / whole) for s, ns in rises if ns > 0), key=lambda rise: -rise[1])


def _by_section(facts: Facts, phase: str, sections: list[Section]) -> list[Detail]:
    samples: defaultdict[int, list[Detail]] = defaultdict(list)
    for d in facts.run.details("sample", phase=phase):
        samples[d.section].append(d)
    return list(itertools.chain.from_iterable(samples[s.index] for s in sections))


@dataclass(frozen=True, slots=True)
class Trend:
    per_second: float  # median of the slopes between all pairs of readings (Theil and Sen)
    rise: float  # over the whole of the readings, by that slope
    steady: bool  # each quarter is higher than the last, and the second half rises as fast as the whole


def trend(seconds: Floats, values: Floats) -> Trend:
    """Of at least 8 readings, in order of time."""
    if len(seconds) > _MOST:
        kept = np.linspace(0, len(seconds) - 1, _MOST).astype(int)
        seconds, values = seconds[kept], values[kept]
    slope = _slope(seconds, values)
    half = len(seconds) // 2
    late = _slope(seconds[half:], values[half:])
    quarters = np.array([np.median(part) for part in np.array_split(values, 4)])
    rises = np.diff(quarters)
    # A step up, or a plateau, has most of its rise in one quarter; what settles, as the largest of more and more random
    # sizes does, rises by ever less (a logarithm by 0.75 of the whole's slope in its second half).
    steady = slope > 0 and bool((rises >= 0.25 * rises.mean()).all()) and 0.8 * slope <= late <= 2 * slope
    return Trend(slope, slope * float(seconds[-1] - seconds[0]), steady)


def still_rises(levels: Floats) -> bool:
    """Whether medians of equal parts of a run, 8 at least, rise to its end: in a line or ever faster. Not a jump, a
    plateau, a level that settles, or noise."""
    if len(levels) < 8:
        return False
    at = np.arange(len(levels), dtype=np.float64)
    slope, half = _slope(at, levels), len(levels) // 2
    if slope <= 0 or _order(levels) < (0.8 if len(levels) < 16 else 0.7):
        return False
    quarters = np.array([np.median(part) for part in np.array_split(levels, 4)])
    rises = np.diff(quarters)
    even = bool((rises >= 0.25 * rises.mean()).all())
    faster = bool(rises[0] > 0 and (np.diff(rises) > 0).all())
    return (even or faster) and _slope(at[half:], levels[half:]) >= 0.75 * slope


def _order(levels: Floats) -> float:
    """Kendall's tau with time: 1 where each level is above all before it, about 0 for noise."""
    first, second = np.triu_indices(len(levels), 1)
    return float(np.sign(levels[second] - levels[first]).mean())


def _slope(seconds: Floats, values: Floats) -> float:
    first, second = np.triu_indices(len(seconds), 1)
    return float(np.median((values[second] - values[first]) / (seconds[second] - seconds[first])))
