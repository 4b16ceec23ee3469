"""The processes that the run started beside DataLoader workers: who they are, what they use, and in which line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trainperf.findings import children as of
from trainperf.findings import frames
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts

SHOWN: Final = 8
_LINES: Final = 3


@dataclass(frozen=True, slots=True)
class LineRow:
    share: float  # of the work that was seen
    place: str  # "augment (data.py:31)"
    calls: str
    spent: str  # "CPU 90%, waiting for a file 10%"


@dataclass(frozen=True, slots=True)
class GroupRow:
    name: str  # "multiprocessing.Pool", "decoder", "ffmpeg"
    count: int
    cpus: float  # while there were any
    or_more: bool  # they are too brief for all of it to be known
    idle: float | None  # share of the samples in which they waited for work; None: too few, or none of Python
    lines: tuple[LineRow, ...]


def child_rows(facts: Facts) -> tuple[tuple[GroupRow, ...], int]:
    """The costliest ones, and how many more kinds there are. None of those that did next to nothing."""
    found = [g for g in of.groups(facts) if g.cpus >= limit("show_share") or g.busy >= limit("good_samples")]
    return tuple(_row(group, facts) for group in found[:SHOWN]), max(0, len(found) - SHOWN)


def _row(group: of.Group, facts: Facts) -> GroupRow:
    told = group.busy >= limit("good_samples")
    lines = [v for v in group.lines[:_LINES] if v.count >= limit("felt_share") * group.busy] if told else []
    return GroupRow(
        name=group.called,
        count=group.count,
        cpus=group.cpus,
        or_more=group.or_more,
        idle=group.idle / group.samples if group.samples >= limit("good_samples") else None,
        lines=tuple(
            LineRow(line.count / group.busy, frames.label(line.frame, facts.base), line.calls, line.spent())
            for line in lines
        ),
    )
