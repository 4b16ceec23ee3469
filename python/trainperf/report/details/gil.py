"""Who held the GIL: by thread and function, how long, and how long the training thread waited for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trainperf.findings import frames

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.run import Run
    from trainperf.runfile import Detail, Frame

SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class Row:
    holder: str
    function: str
    place: str
    top_frame: str  # the innermost: what was being called
    waited_ms: float  # by the training thread, exact
    waits: int
    held_ms: float | None  # sampled; None: holds were not sampled


@dataclass(frozen=True, slots=True)
class Gil:
    rows: tuple[Row, ...]
    left_out: int
    waited_ms: float
    share: float  # of the run's time
    exact: bool
    off: str  # why nothing was measured


def gil(run: Run, facts: Facts) -> Gil:
    waits = run.detail_totals("gil_wait")
    off, held_off = facts.off("gil_waits") or "", facts.off("gil_holds") or ""
    waited = sum(d.ns for d in waits)
    groups: defaultdict[tuple[int, str, str], dict[str, list[Detail]]] = defaultdict(lambda: {"wait": [], "hold": []})
    for kind, details in (("wait", waits), ("hold", run.detail_totals("hold"))):
        for d in details:
            at = _frame(run, d.stack)
            key = (d.thread.id if d.thread else 0, at.file if at else "", at.function if at else "")
            groups[key][kind].append(d)
    rows = [_row(run, facts, found, held=not held_off) for found in groups.values()]
    rows = [r for r in rows if r.waited_ms or r.held_ms]
    rows.sort(key=lambda r: (-r.waited_ms, -(r.held_ms or 0)))
    return Gil(
        rows=tuple(rows[:SHOWN]),
        left_out=max(0, len(rows) - SHOWN),
        waited_ms=waited / 1e6,
        share=facts.share(waited),
        exact=facts.tier("gil_waits") == "exact",
        off=off,
    )


def _frame(run: Run, stack: int) -> Frame | None:
    found = frames.shown_frame(run.stack(stack))
    return found  # type: ignore[return-value]


def _row(run: Run, facts: Facts, found: dict[str, list[Detail]], *, held: bool) -> Row:
    every = found["wait"] + found["hold"]
    top = max(every, key=lambda d: d.ns)
    stack: Sequence[Frame] = run.stack(top.stack)
    at = frames.shown_frame(stack)
    inner = stack[0] if stack else None
    waits = found["wait"]
    return Row(
        holder=facts.thread_name(top.thread),
        function=frames.short_function(at.function) if at else ("many small ones" if top.folded else "not known"),
        place=frames.place(at, facts.base) if at else "",
        top_frame=frames.short_function(inner.function) if inner is not None and inner is not at else "",
        waited_ms=sum(d.ns for d in waits) / 1e6,
        waits=sum(d.count for d in waits),
        held_ms=sum(d.ns for d in found["hold"]) / 1e6 if held else None,
    )
