"""Several ranks compared: each one's causes, and which keeps the others waiting."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

from trainperf.findings.thresholds import limit
from trainperf.ranks.files import number, ranks_in_words, told_number
from trainperf.ranks.waits import waits
from trainperf.runfile.schema import CAUSES, MACHINE

if TYPE_CHECKING:
    from trainperf.findings.model import Standing
    from trainperf.run import Run

_MOST: Final = 40


@dataclass(frozen=True, slots=True)
class Rank:
    rank: int
    host: str
    file: str
    steps: int
    mean_ms: float
    causes: tuple[tuple[str, float], ...]  # ms per step, all that are not 0, in the vocabulary's order
    own_ms: float  # per step, without waiting for the others and exchanging with them
    unclear_ms: float  # of own_ms: asleep, and perhaps for the others
    waits_ms: float  # of cause blocked_io: asleep for the others
    verdict: str
    ended: str


@dataclass(frozen=True, slots=True)
class Ranks:
    ranks: tuple[Rank, ...]  # by number; of very many those with the most and the least work of their own
    count: int
    even: bool
    stragglers: tuple[int, ...]  # whom the others wait for, the slowest first
    sentence: str
    unreadable: tuple[str, ...]  # one line each
    complete: bool  # every rank of the job is here, and has steps

    def standing(self, run: Run) -> Standing:
        """Of one of them; not known while a file is missing, which may be the late one's."""
        if not self.complete:
            return ""
        return "even" if self.even else "late" if number(-1, run) == self.straggler else ""

    @property
    def straggler(self) -> int | None:
        return self.stragglers[0] if self.stragglers else None

    def told(self, rank: Rank) -> str:
        """Its verdict; of a rank that mostly waits for the others, that. Which part of it is the exchange itself is not
        known: where all are even it may be all of it, and nobody waits for longer than the stragglers."""
        together = rank.mean_ms - rank.own_ms
        if self.even or rank.rank in self.stragglers or together < 0.5 * rank.mean_ms or not rank.steps:
            return rank.verdict
        return f"waits for the others (or exchanges with them), {together:.1f} ms/step ({together / rank.mean_ms:.0%})"

    def vague(self, rank: Rank) -> bool:
        """Whether what is unclear of its own work matters."""
        return rank.unclear_ms >= _felt_ms(rank) > 0


def ranks(runs: Sequence[Run], *, unreadable: Sequence[str] = ()) -> Ranks | None:
    """None for a single run: there is nothing to compare."""
    rows = tuple(sorted((_rank(i, run) for i, run in enumerate(runs)), key=lambda r: r.rank))
    if len(rows) < 2:
        return None
    stepped = sorted((r for r in rows if r.steps), key=lambda r: -r.own_ms)
    even, stragglers, sentence = _judged(stepped) if len(stepped) >= 2 else (False, (), _TOO_FEW)
    world = max(told_number(run, "world_size") or 0 for run in runs)
    complete = len(stepped) == len(rows) == world and not unreadable
    return Ranks(_shown(rows), len(rows), even, stragglers, sentence, tuple(unreadable), complete)


_TOO_FEW: Final = "Fewer than two ranks have steps: there is nothing to compare."


def _judged(stepped: Sequence[Rank]) -> tuple[bool, tuple[int, ...], str]:
    """Whether they are even, the stragglers, and a sentence. `stepped`: most work of its own first."""
    slowest, fastest = stepped[0], stepped[-1]
    much = _felt_ms(slowest)
    if slowest.own_ms - min(_least(r) for r in stepped) < much:
        most = slowest.own_ms - fastest.own_ms
        return True, (), f"The {len(stepped)} ranks are even: their own work differs by {most:.2f} ms a step at most."
    if any(r.unclear_ms >= much for r in stepped):
        sure = max(stepped, key=_least)
        others = [r for r in stepped if r is not sure]
        if _least(sure) - others[0].own_ms < much:
            return False, (), _unclear(stepped)
        slow = [sure]
    else:
        gap = next((i for i in range(1, len(stepped)) if stepped[i - 1].own_ms - stepped[i].own_ms >= much), 0)
        if not gap:
            return (
                False,
                (slowest.rank,),
                (
                    f"The ranks' own work rises evenly from {fastest.own_ms:.1f} ms a step (rank {fastest.rank}) to "
                    f"{slowest.own_ms:.1f} ms (rank {slowest.rank}): all wait for rank {slowest.rank}."
                ),
            )
        slow, others = list(stepped[:gap]), list(stepped[gap:])
        if len(slow) > len(others):
            have, own, they = ("have", "their", "they wait") if len(others) > 1 else ("has", "its", "it waits")
            return (
                False,
                (),
                (
                    f"{_names(others)} {have} less to do: {_range(others)} ms a step of {own} own work, the other "
                    f"{len(slow)} have {_range(slow)} ms, and {they} for them."
                ),
            )
    own, are = ("their", "are the stragglers") if len(slow) > 1 else ("its", "is the straggler")
    them = "them" if len(slow) > 1 else "it"
    the_others = "the others" if len(others) > 1 else f"{_names(others).lower()} has"
    return (
        False,
        tuple(r.rank for r in slow),
        (
            f"{_names(slow)} {are}: {_range(slow)} ms a step of {own} own work, {the_others} {_range(others)} ms. "
            f"All wait for {them}{_most(slow, others)}."
        ),
    )


def _felt_ms(r: Rank) -> float:
    """By how much a step's own work must differ to be no noise: means of a short run differ by chance."""
    seconds = r.steps * r.mean_ms / 1e3
    short = math.sqrt(limit("straggles_sure_s") / seconds) if seconds else 1.0
    return limit("straggles_share") * r.mean_ms * max(1.0, short)


def _least(r: Rank) -> float:
    return r.own_ms - r.unclear_ms


def _unclear(stepped: Sequence[Rank]) -> str:
    most = max(stepped, key=lambda r: r.unclear_ms)
    return (
        f"It is unclear which rank keeps the others waiting: rank {most.rank} is asleep for {most.unclear_ms:.1f} ms a "
        "step, and no sample says whether it waits for the others or for something of its own."
    )


def _names(rows: Sequence[Rank]) -> str:
    """ "Rank 3", "Ranks 0-2, 5"."""
    return ranks_in_words({r.rank for r in rows}).capitalize()


def _range(rows: Sequence[Rank]) -> str:
    """ "9.0", "9.0 to 12.1"."""
    least, most = (f"{pick(r.own_ms for r in rows):.1f}" for pick in (min, max))
    return least if least == most else f"{least} to {most}"


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
    waited = waits(run)
    return Rank(
        rank=number(position, run),
        host=run.meta.get("host", ""),
        file=os.path.basename(run.path),
        steps=run.step_count,
        mean_ms=run.wall_ns / steps / 1e6,
        causes=tuple((c, ns / steps / 1e6) for c in CAUSES if (ns := run.cause_ns(c)) > 0),
        own_ms=max(0, run.wall_ns - waited.collective_ns - waited.blocked_ns) / steps / 1e6,
        unclear_ms=waited.unclear_ns / steps / 1e6,
        waits_ms=waited.blocked_ns / steps / 1e6,
        verdict=run.judged.verdict.text,
        ended=run.ended,
    )


def _most(slow: Sequence[Rank], others: Sequence[Rank]) -> str:
    """ "; the difference is mostly data_wait (+8.1 ms)": what they have more of than the others.

    Who is on the CPU for longer is also kept off it for longer, where the machine is busy: that is told as the
    difference only where what they do themselves is small beside it.
    """
    mine, theirs = [_own_causes(r) for r in slow], [_own_causes(r) for r in others]
    more = {c: _usual(c, mine) - _usual(c, theirs) for c in CAUSES}
    machines = max(MACHINE, key=lambda c: more[c])
    own = max((c for c in CAUSES if c not in MACHINE), key=lambda c: more[c])
    if max(more[own], more[machines]) <= 0:
        return ""
    if more[own] >= more[machines]:
        return f"; the difference is mostly {own} (+{more[own]:.1f} ms)"
    if more[own] < 0.5 * more[machines]:
        return f"; the difference is mostly {machines} (+{more[machines]:.1f} ms)"
    return (
        f"; the difference is mostly {own} (+{more[own]:.1f} ms) and, as CPUs are short, "
        f"{machines} (+{more[machines]:.1f} ms)"
    )


def _usual(cause: str, ranks_: Sequence[Mapping[str, float]]) -> float:
    return median(causes.get(cause, 0.0) for causes in ranks_)


def _own_causes(r: Rank) -> Mapping[str, float]:
    causes = {c: ms for c, ms in r.causes if c != "collective"}
    causes["blocked_io"] = causes.get("blocked_io", 0.0) - r.waits_ms
    return causes
