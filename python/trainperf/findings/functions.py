"""Functions of the user's that samples were seen in, with all of their time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainperf.findings.text import Share
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts, Spot
    from trainperf.findings.model import Cell, Params


@dataclass(frozen=True, slots=True)
class Functions:
    spots: list[Spot]  # costliest first
    claims: dict[Cell, int]

    @property
    def ns(self) -> int:
        return sum(self.claims.values())

    @property
    def samples(self) -> int:
        return sum(s.samples for s in self.spots)

    def rows(self, facts: Facts, *, with_caller: bool = False) -> tuple[Params, ...]:
        """Where most of the time was seen: a row for each of the costliest, three at most."""
        label = facts.label_with_caller if with_caller else facts.label
        shown = [s for s in self.spots[:3] if s is self.spots[0] or s.share >= limit("show_share")]
        return tuple({"share": Share(s.share), "place": label(s)} for s in shown)
