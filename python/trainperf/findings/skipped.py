"""Batches that the loop fetches and does not train on before a step, as where a training resumes within an epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trainperf.findings import loaders
from trainperf.findings.thresholds import limit
from trainperf.findings.vocabulary import CAUSES, PHASES

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.model import Cell
    from trainperf.runfile import Int64Array, Loader


@dataclass(frozen=True, slots=True)
class Skipped:
    """The steps that fetched many times as many batches as the others, and did little else with them."""

    main: Loader
    batches: int
    steps: int
    in_first: bool  # all of them before the first backward
    claims: dict[Cell, int]

    @property
    def ns(self) -> int:
        return sum(self.claims.values())


def skipped(facts: Facts) -> Skipped | None:
    """None: each step fetches about as many, or trains on what it fetches."""
    table = facts.run.steps
    read = [v for v in facts.run.loaders.values() if v.fetches.count]
    if facts.of_trace or not read or not len(table.count):
        return None
    each = table.fetches / table.count
    usual = max(1.0, float(np.median(each)), float(np.median(table.backwards / table.count)))
    fetching = table.phases_ns[:, PHASES.index("fetch")]
    many = (table.count == 1) & (table.fetches >= limit("skipped_ratio") * np.maximum(usual, table.backwards))
    many &= fetching >= limit("most_share") * table.wall_ns
    if not many.any():
        return None
    dropped = np.where(many, table.fetches - round(usual), 0)
    waited = table.causes_ns[:, CAUSES.index("data_wait")] - _starting(facts, table.index)
    ns = int((np.maximum(waited, 0)[many] * (dropped[many] / table.fetches[many])).sum())
    return Skipped(
        main=max(read, key=lambda v: v.fetches.count),
        batches=int(dropped.sum()),
        steps=int(many.sum()),
        in_first=bool(many[0]) and int(many.sum()) == 1 and int(table.index[0]) == 0,
        claims=loaders.spread(facts.cells("data_wait", ["fetch"]), ns),
    )


def _starting(facts: Facts, steps: Int64Array) -> Int64Array:
    """What iterators' starts and first batches took in these steps, which is TP104's."""
    took: dict[int, int] = {}
    for s in (*facts.run.spans("loader_start"), *facts.run.spans("first_fetch")):
        took[s.step] = took.get(s.step, 0) + s.end_ns - s.start_ns
    return np.array([took.get(int(step), 0) for step in steps], dtype=np.int64)
