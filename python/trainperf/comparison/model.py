"""What a comparison says. Times are milliseconds per step; "before" is the first run, "after" the second."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["faster", "slower", "same", "unknown"]
Relative = tuple[float, float, float]  # change of the mean step, and its interval; 0.1: 10 % slower


@dataclass(frozen=True, slots=True)
class Change:
    """A part of the mean step in both runs, and the difference with its interval of confidence (95 %)."""

    name: str
    before: float
    after: float
    low: float  # of after - before
    high: float

    @property
    def difference(self) -> float:
        return self.after - self.before

    @property
    def told(self) -> bool:
        """More than noise: the interval leaves zero out."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, slots=True)
class RankChange:
    """One rank of both runs."""

    rank: int
    total: Change
    cause: Change  # the one that changed most


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two runs; of several ranks what their mean, or where it is said the straggler, shows."""

    path: str
    name: str
    started: str
    label: str  # its verdict in a word: "data-starved", "compute-bound"; of several ranks the straggler's
    steps: int  # compared; of several ranks the fewest
    left_out: int  # warm-up steps, and in long runs their neighbours in the same row
    steps_per_row: int  # > 1: a long run, whose rows are means of so many neighbouring steps
    median_ms: float | None
    ranks: int = 1
    straggler: int | None = None  # which rank keeps the others waiting
    stragglers: tuple[int, ...] = ()  # all that do, the slowest first


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    kind: Kind  # "same": no difference beyond noise; "unknown": cannot tell
    verdict: str  # one line
    before: Side
    after: Side
    relative: Relative | None
    total: Change | None  # None: cannot be compared at all
    wall: Change | None = None  # of the step with everything; `total` is the same unless machine_left_out
    causes: tuple[Change, ...] = ()  # all that either run has, the largest difference first; they sum to the whole step
    phases: tuple[Change, ...] = ()
    devices: tuple[Change, ...] = ()  # busy, idle, and then what they idled for; () unless both runs have some
    ranks: tuple[RankChange, ...] = ()  # () of a single run; all else is of their mean step
    machine_left_out: bool = False  # `total` and `relative` are without descheduled and throttled time
    gone: tuple[str, ...] = ()  # findings of the first run that the second does not have: "TP101 data-starved"
    new: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what else differs: the host, the batch size

    def regressed(self, limit: float) -> bool:
        """Slower beyond noise, and by at least `limit` (0.05: 5 %)."""
        return self.kind == "slower" and self.relative is not None and self.relative[0] >= limit
