"""Loaders that begin again for each batch, as `next(iter(loader))` does: what all that beginning costs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainperf.findings import frames, loaders
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.model import Cell
    from trainperf.runfile import Detail, Frame, Loader

_MECHANISMS = ("python", "native", "blocked")
_PHASES = ("forward", "backward", "optimizer", "other")


@dataclass(frozen=True, slots=True)
class Outside:
    """The exact time outside of fetches that samples tell is a loader's own."""

    details: frozenset[Detail]
    claims: dict[Cell, int]

    @property
    def ns(self) -> int:
        return sum(self.claims.values())

    def is_told(self, facts: Facts) -> bool:
        """Whether a rule before this one took it."""
        return self.ns > 0 and all(facts.matrix[c] - facts.ledger.left(c) >= ns for c, ns in self.claims.items())


@dataclass(frozen=True, slots=True)
class Restarts:
    main: Loader  # of those, the one that costs most
    starts: int
    batches: int
    anew: bool  # each start was of a loader made anew
    sampled_ns: int  # by samples: what drew the indices of those without workers
    in_process_ns: int  # of the fetches' time: that and iter(loader), of those without workers
    began_ns: int  # of the fetches' time, in all
    left: Outside  # what came after a batch: its workers stop, its indices go
    claims: dict[Cell, int]


def restarts(facts: Facts) -> Restarts | None:
    """None: each loader goes on, to the end of its epoch or for several batches; or a framework's loop begins them, for
    as few batches as it was told to."""
    if facts.run.meta.get("framework"):
        return None
    found = [v for v in facts.run.loaders.values() if _begins_again(v)]
    starts = sum(v.fetches.first_count for v in found)
    if starts < limit("restart_min_starts") or 2 * starts < facts.steps:
        return None
    cells = facts.cells("data_wait", ["fetch"])
    began = _starts_ns(facts, found)
    in_process = [v for v in found if not loaders.num_workers(v)]
    # What a batch itself takes they take however they go on.
    sampled = min(sum(facts.sampler_cells.values()), sum(v.fetches.first_wall_ns for v in in_process))
    in_process_ns = sum(began[v.id] for v in in_process) + sampled
    with_workers = {v.id: began[v.id] + v.fetches.first_wall_ns for v in found if loaders.num_workers(v)}
    began_ns = in_process_ns + sum(with_workers.values())
    left = _outside(facts, frames.stops_workers if with_workers else frames.gives_back)
    return Restarts(
        main=max(found, key=lambda v: with_workers.get(v.id, began[v.id] + v.fetches.first_wall_ns)),
        starts=starts,
        batches=sum(v.fetches.count + v.fetches.first_count for v in found),
        anew=all(v.fetches.first_count == 1 for v in found),
        sampled_ns=sampled,
        in_process_ns=in_process_ns,
        began_ns=began_ns,
        left=left,
        claims=loaders.spread(cells, began_ns) | left.claims,
    )


def workers_stop(facts: Facts) -> Outside:
    """Outside of a fetch workers stop where the loop leaves an epoch before its end, or lets an iterator go."""
    with_workers = [v for v in facts.run.loaders.values() if loaders.num_workers(v)]
    if not with_workers or any(map(loaders.only_validates, with_workers)):  # may be a validation's
        return Outside(frozenset(), {})
    return _outside(facts, frames.stops_workers)


def _begins_again(loader: Loader) -> bool:
    """Each time after a batch or two, and most times before the end of an epoch, which may be that short."""
    f = loader.fetches
    few = f.first_count > 0 and f.count + f.first_count <= limit("restart_batches") * f.first_count
    return few and f.exhausted_count <= limit("half_share") * f.first_count


def _starts_ns(facts: Facts, found: Sequence[Loader]) -> dict[int, int]:
    """What iter(loader) took. Only the longest spans are kept: the rest is of who begins most often."""
    took = {v.id: 0 for v in found}
    whole = facts.run.span_total("loader_start").ns
    for s in facts.run.spans("loader_start"):
        whole -= s.end_ns - s.start_ns
        if s.object in took:
            took[s.object] += s.end_ns - s.start_ns
    most = max(found, key=lambda v: v.fetches.first_count, default=None)
    if most is not None:
        took[most.id] += max(0, whole)
    return took


def _outside(facts: Facts, is_it: Callable[[Sequence[Frame]], bool]) -> Outside:
    claims: dict[Cell, int] = {}
    told: list[Detail] = []
    for cell in itertools.product(_PHASES, _MECHANISMS):
        samples = facts.samples(phases=[cell[0]], states=[cell[1]])
        mine = [d for d in samples if is_it(facts.run.stack(d.stack))]
        ns = facts.matrix[cell] * sum(d.ns for d in mine) // max(1, sum(d.ns for d in samples))
        if ns:
            claims[cell] = ns
            told += mine
    return Outside(frozenset(told), claims)
