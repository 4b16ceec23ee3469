"""What the source says of a place: a loop over weights, a file that is written anew, a file that is locked; and which
functions keep a log."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainperf.findings.frames import short_function, short_path
from trainperf.findings.model import Said
from trainperf.runfile.schema import described

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts, Spot
    from trainperf.findings.frames import FrameLike

_FUSED = frozenset({"lerp", "copy", "clip", "clip_value", "decay", "scale", "update", "statistics"})
# Of a library's function, or where the source was not read, the name tells.
_AVERAGE = re.compile(r"(^|_)(ema|momentum|polyak|soft_update|moving_average|follow_teacher)(_|$)", re.I)

_LOG = re.compile(
    r"(Log(ger)?|Metrics?|History|Tracker|Recorder|Stat(istic)?s?)(?![a-z])|(^|[._])(log|logs|metrics?|history|stats)(_|\.|$)"
)


def fused(facts: Facts, spot: Spot) -> Said | None:
    """What does the same for all weights at once; None where the place is in no loop over weights."""
    kind = _kind(facts, spot)
    called = short_function(spot.leaf) if spot.leaf else ""
    if kind not in _FUSED and spot.all_in_leaf and _AVERAGE.search(called.rpartition(".")[2]):
        kind = "lerp"
    return Said(f"fused_{kind}") if kind in _FUSED else None


def rewrites(facts: Facts, spot: Spot) -> bool:
    """It is where a file of text is written from its beginning."""
    return _kind(facts, spot) == "rewrite"


def asks_database(facts: Facts, spot: Spot) -> bool:
    """Its line calls a database, or ends a `with` that does."""
    return _kind_at(_recorded(facts), spot.frame) == "database"


def file_lock_at(facts: Facts, file: str) -> str:
    """ "train.py:41", the one line that locks a file: of this source file, or else of the whole program. "" where there
    are several, or none."""
    lines = _recorded(facts)
    found = [
        [(of, first) for of, loops in lines.items() for first, _, kind in loops if kind == "file_lock" and of in among]
        for among in ({file}, set(lines))
    ]
    (at, line), *more = next(filter(None, found), [("", 0)])
    return f"{short_path(at, facts.base)}:{line}" if at and not more else ""


def is_of_log(frame: FrameLike) -> bool:
    """By its name a function that keeps a log or metrics, which is no checkpoint whatever it saves by."""
    return _LOG.search(frame.function) is not None


def _kind(facts: Facts, spot: Spot) -> str:
    lines = _recorded(facts)
    kinds = (_kind_at(lines, frame) for frame in (spot.frame, *(f for f, _ in spot.callers)))
    return next(filter(None, kinds), "")


def _recorded(facts: Facts) -> Mapping[str, Any]:
    return {file: _loops(loops) for file, loops in described(facts.run.meta, "source_marks").items()}


def _loops(read: object) -> list[tuple[int, int, str]]:
    """Of a file: first line, last line, kind."""
    return [
        (row[0], row[1], row[2])
        for row in (read if isinstance(read, list) else ())
        if isinstance(row, list) and [type(value) for value in row] == [int, int, str]
    ]


def _kind_at(lines: Mapping[str, Any], frame: FrameLike) -> str:
    """Of the innermost loop that the line is in."""
    name = os.path.basename(frame.file)
    loops = lines.get(frame.file) or next((v for f, v in lines.items() if os.path.basename(f) == name), ())
    around = [(last - first, kind) for first, last, kind in loops if first <= frame.line <= last]
    return str(min(around)[1]) if around else ""
