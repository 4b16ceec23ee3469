"""What modes for debugging cost, by the samples that show them at work."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from trainperf.findings.frames import FrameLike
from trainperf.findings.thresholds import limit
from trainperf.findings.vocabulary import MECHANISM_OF
from trainperf.findings.weights import NOTHING, Part

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.model import Cell
    from trainperf.runfile import Detail

_ANOMALY = re.compile(r"[/\\]torch[/\\]fx[/\\]traceback\.py$")
_MECHANISMS = ("python", "native", "blocked")


def in_anomaly(stack: Sequence[FrameLike]) -> bool:
    """Autograd formats the Python stack of an operation, to be shown when its gradient is NaN."""
    return any(_ANOMALY.search(f.file) and f.function == "format_stack" for f in stack)


def anomaly_cost(facts: Facts) -> Part:
    """What is seen of it: not the conversion to C++ strings, nor the checks of gradients in backward."""
    return cost_of(facts, in_anomaly) if facts.run.anomaly_percent else NOTHING


def tracer_cost(facts: Facts) -> Part:
    """What a trace function written in Python takes itself; that of C has no frame."""
    return cost_of(facts, in_reported_tracer(facts))


def in_reported_tracer(facts: Facts) -> Callable[[Sequence[FrameLike]], bool]:
    """Whether a stack is in a trace function that was set for most of the run."""
    file, _, function = facts.run.meta.get("tracer", "").rpartition(":")
    if not file or facts.run.traced_percent < 100 * limit("half_share"):
        return lambda stack: False
    return lambda stack: any(f.file == file and f.function == function for f in stack)


def cost_of(facts: Facts, shows: Callable[[Sequence[FrameLike]], bool]) -> Part:
    """The exact time that the samples of some stacks stand for."""
    claims: dict[Cell, int] = {}
    found: list[Detail] = []
    for cell, exact in facts.matrix.items():
        if exact <= 0 or cell[1] not in _MECHANISMS:
            continue
        states = [state for state, mechanism in MECHANISM_OF.items() if mechanism == cell[1]]
        read = facts.samples(phases=[cell[0]], states=states)
        mine = [d for d in read if shows(facts.run.stack(d.stack))]
        whole = sum(d.ns for d in read)
        if mine and whole:
            claims[cell] = exact * sum(d.ns for d in mine) // whole
            found += mine
    return Part(claims, tuple(found))
