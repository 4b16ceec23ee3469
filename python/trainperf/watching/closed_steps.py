"""Closed steps, as the program that is being trained sees them while it trains: Watch.flags, on_flag, step_totals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# StepFlag of cpp/trainperf/timeline/records.h, by bit. The first three call on_flag.
FLAGS = ("data_starved", "gil_contended", "host_stalled")
_NAMED = {1: FLAGS[0], 2: FLAGS[1], 4: FLAGS[2], 8: "incomplete"}
_WARM_UP = 16

Raw = tuple[int, int, int, tuple[int, ...]]  # index, wall_ns, StepFlags, causes_ns


@dataclass(frozen=True, slots=True)
class ClosedStep:
    """A finished step, with its time by cause."""

    index: int  # from 0
    flags: tuple[str, ...]  # of data_starved, gil_contended, host_stalled; incomplete: events of it were lost
    warm_up: bool  # the run's first step, or one that torch.compile ran in
    wall_ms: float
    causes_ms: Mapping[str, float]  # every cause; they sum to wall_ms

    @classmethod
    def of(cls, raw: Raw, causes: Sequence[str]) -> ClosedStep:
        index, wall_ns, bits, causes_ns = raw
        return cls(
            index,
            tuple(name for bit, name in _NAMED.items() if bits & bit),
            bool(bits & _WARM_UP),
            wall_ns / 1e6,
            {cause: ns / 1e6 for cause, ns in zip(causes, causes_ns, strict=True)},
        )


@dataclass(frozen=True, slots=True)
class Flags:
    """Watch.flags: what was flagged so far."""

    steps: int  # that have closed
    counts: Mapping[str, int]  # flag -> in how many of them
    # The last flagged ones, at most 1024, oldest first; too long to be shown with the rest.
    recent: tuple[ClosedStep, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class StepTotals:
    """Watch.step_totals: sums over the steps that have closed so far, however many they are."""

    steps: int
    wall_ns: int
    causes_ns: Mapping[str, int]
    flags: Mapping[str, int]  # flag -> in how many steps

    def since(self, earlier: StepTotals) -> StepTotals:
        """What came after `earlier`."""
        return StepTotals(
            self.steps - earlier.steps,
            self.wall_ns - earlier.wall_ns,
            {cause: ns - earlier.causes_ns[cause] for cause, ns in self.causes_ns.items()},
            {flag: count - earlier.flags[flag] for flag, count in self.flags.items()},
        )

    def mean_ms(self, *causes: str) -> float:
        """Of these causes together, or without any of the whole step, per step; 0.0 when there was no step."""
        ns = sum(self.causes_ns[cause] for cause in causes) if causes else self.wall_ns
        return ns / self.steps / 1e6 if self.steps else 0.0
