"""Pairs of trials, A B B A ..., until the evidence is enough, it cannot become enough, or time is up.

No pair is dropped for what it shows. One that other programs disturbed is run again, whichever side was faster.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from trainperf.prove.sequential import ALPHA, LEAST_GAIN, MAX_PAIRS, Evidence, judge

_DISTURBED = 0.5  # CPUs: by how much more others may use in one trial of a pair than in the other
_MOST_REPEATS = 3


@dataclass(frozen=True, slots=True)
class Measured:
    """One trial's figure."""

    rate: float  # samples per second; 0.0: it has none
    others_cpus: float | None = None  # that other programs used meanwhile


@dataclass(frozen=True, slots=True)
class Proof:
    evidence: Evidence
    repeated: int  # pairs, as others disturbed them
    stopped: str = ""  # why before a decision: "time", "pairs"


class Stop(Exception):
    """Raised by a trial: there is no use in further pairs."""


def prove(
    without: Callable[[], Measured],
    with_it: Callable[[], Measured],
    *,
    deadline: float,
    pair_s: float,
    alpha: float = ALPHA,
    least_gain: float = LEAST_GAIN,
    progress: Callable[[Evidence], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> Proof:
    """`deadline`: of `clock`; no pair begins that would end after it, if it takes as long as the
    last one, or `pair_s` for the first."""
    logs: list[float] = []
    repeated = 0
    evidence = judge(logs)
    while evidence.decision == "open":
        if len(logs) == MAX_PAIRS:
            return Proof(evidence, repeated, "pairs")
        began = clock()
        if began + pair_s > deadline:
            return Proof(evidence, repeated, "time")
        if len(logs) % 2 == 0:
            a, b = without(), with_it()
        else:
            b, a = with_it(), without()
        pair_s = clock() - began
        if repeated < _MOST_REPEATS and _disturbed(a, b):
            repeated += 1
            continue
        logs.append(math.log(b.rate / a.rate))
        evidence = judge(logs, alpha=alpha, least_gain=least_gain)
        progress(evidence)
    return Proof(evidence, repeated)


def _disturbed(a: Measured, b: Measured) -> bool:
    return a.others_cpus is not None and b.others_cpus is not None and abs(a.others_cpus - b.others_cpus) > _DISTURBED
