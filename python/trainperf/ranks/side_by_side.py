"""Several ranks beside each other: each one's causes, and who keeps the others waiting."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

from trainperf.findings.vocabulary import CAUSES, MECHANISMS, PHASES
from trainperf.ranks.files import number

if TYPE_CHECKING:
    from trainperf.run import Run

_MOST: Final = 40
_STRAGGLES: Final = 0.05  # of a step: by so much more of its own work than the usual rank's
# Where a rank waits for the others: in a collective, or (gloo, on CPUs) blocked within backward or the optimizer.
_WAITS: Final = (("backward", "blocked"), ("optimizer", "blocked"))


@dataclass(frozen=True, slots=True)
class Rank:
    rank: int
    host: str
    file: str
    steps: int
    mean_ms: float
    causes: tuple[tuple[str, float], ...]  # ms per step, all that are not 0, in the vocabulary's order
    own_ms: float  # per step, without what it waited for the others
    verdict: str
    ended: str


@dataclass(frozen=True, slots=True)
class Ranks:
    ranks: tuple[Rank, ...]  # by number; of very many those with the most and the least work of their own
    count: int
    straggler: int | None
    sentence: str
    unreadable: tuple[str, ...]  # one line each


def ranks(runs: Sequence[Run], *, unreadable: Sequence[str] = ()) -> Ranks | None:
    """None for a single run: there is nothing to compare."""
    rows = tuple(sorted((_rank(i, run) for i, run in enumerate(runs)), key=lambda r: r.rank))
    if len(rows) < 2:
        return None
    stepped = [r for r in rows if r.steps]
    straggler, sentence = None, f"{len(rows)} ranks"
    if len(stepped) >= 2:
        slowest = max(stepped, key=lambda r: r.own_ms)
        others = median(r.own_ms for r in stepped if r is not slowest)
        more = slowest.own_ms - others
        if more >= _STRAGGLES * slowest.mean_ms:
            straggler = slowest.rank
            sentence = (
                f"Rank {slowest.rank} is the straggler: {slowest.own_ms:.1f} ms a step of its own work, the others "
                f"{others:.1f} ms. What it takes longer, all wait for{_most(slowest, stepped)}."
            )
        else:
            sentence = f"The {len(stepped)} ranks are even: their own work differs by {more:.2f} ms a step at most."
    return Ranks(_shown(rows), len(rows), straggler, sentence, tuple(unreadable))


def straggler(runs: Sequence[Run]) -> int:
    """Which of the runs a report should be about: the straggler's, else the first rank's."""
    found = ranks(runs)
    wanted = found.straggler if found is not None else None
    numbers = [number(i, run) for i, run in enumerate(runs)]
    return numbers.index(wanted) if wanted is not None else numbers.index(min(numbers))


def _shown(rows: tuple[Rank, ...]) -> tuple[Rank, ...]:
    if len(rows) <= _MOST:
        return rows
    by_work = sorted(rows, key=lambda r: -r.own_ms)
    return tuple(sorted(by_work[: _MOST * 3 // 4] + by_work[-(_MOST // 4) :], key=lambda r: r.rank))


def _rank(position: int, run: Run) -> Rank:
    steps = max(1, run.step_count)
    matrix = run.matrix_ns
    waits = run.cause_ns("collective") + sum(
        int(matrix[PHASES.index(phase), MECHANISMS.index(mechanism)]) for phase, mechanism in _WAITS
    )
    return Rank(
        rank=number(position, run),
        host=run.meta.get("host", ""),
        file=os.path.basename(run.path),
        steps=run.step_count,
        mean_ms=run.wall_ns / steps / 1e6,
        causes=tuple((c, ns / steps / 1e6) for c in CAUSES if (ns := run.cause_ns(c)) > 0),
        own_ms=max(0, run.wall_ns - waits) / steps / 1e6,
        verdict=run.judged.verdict.text,
        ended=run.ended,
    )


def _most(slowest: Rank, ranks_: Sequence[Rank]) -> str:
    """ "; mostly data_wait (+8.1 ms)": what it has more of than the others."""
    mine = dict(slowest.causes)
    others = [dict(r.causes) for r in ranks_ if r is not slowest]
    more = {c: ms - median(o.get(c, 0.0) for o in others) for c, ms in mine.items() if c != "collective"}
    top = max(more, key=lambda c: more[c], default="")
    return f"; mostly {top} (+{more[top]:.1f} ms)" if top and more[top] > 0 else ""
