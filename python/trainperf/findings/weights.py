"""Samples, and the exact times that they stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trainperf.findings.thresholds import limit
from trainperf.findings.vocabulary import MECHANISM_OF

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.model import Cell
    from trainperf.runfile import Detail


def total(details: Iterable[Detail]) -> int:
    """ns"""
    return sum(d.ns for d in details)


@dataclass(frozen=True, slots=True)
class Part:
    """The exact time that samples tell is of one kind, and these."""

    claims: dict[Cell, int]
    details: tuple[Detail, ...]

    @property
    def ns(self) -> int:
        return sum(self.claims.values())

    @property
    def samples(self) -> int:
        return sum(d.count for d in self.details)


NOTHING = Part({}, ())


def part_of(facts: Facts, cells: Iterable[Cell], is_it: Callable[[Detail], bool]) -> Part:
    """Of the exact time of each cell as much as of its samples."""
    claims: dict[Cell, int] = {}
    details: list[Detail] = []
    for cell in cells:
        samples = facts.samples(phases=cell[:1], states=cell[1:])
        mine = [d for d in samples if is_it(d)]
        ns = facts.matrix[cell] * total(mine) // max(1, total(samples))
        if ns:
            claims[cell] = ns
            details += mine
    return Part(claims, tuple(details))


def weighed(samples: Iterable[Detail], cells: Mapping[Cell, int]) -> list[Detail]:
    """Those that tell what the thread did, with ns of which those of a phase and mechanism sum to its exact time, in
    `cells`. Where they are too few they keep the weight that they have among all, and sum to that at most."""
    known = [d for d in samples if d.state in MECHANISM_OF]
    ns: dict[Cell, int] = {}
    count: dict[Cell, int] = {}
    for d in known:
        cell = (d.phase, MECHANISM_OF[d.state])
        ns[cell] = ns.get(cell, 0) + d.ns
        count[cell] = count.get(cell, 0) + d.count
    overall = sum(cells.get(cell, 0) for cell in ns) / max(1, sum(ns.values()))
    weights = {
        cell: exact if count[cell] >= limit("min_samples") else min(exact, overall)
        for cell in ns
        for exact in [cells.get(cell, 0) / max(1, ns[cell])]
    }
    return [replace(d, ns=round(d.ns * weights[d.phase, MECHANISM_OF[d.state]])) for d in known]
