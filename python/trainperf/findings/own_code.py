"""The loop's own functions: what of the training thread's Python and native code is theirs, and not training itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from trainperf.findings.frames import (
    in_module,
    is_other_library,
    is_the_loops,
    is_trainings_own,
    named_function,
    user_frame,
)
from trainperf.findings.model import Cell

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts, Spot
    from trainperf.runfile import Detail, Frame

    Keeps = Callable[[Sequence[Frame]], bool]

_TRANSFER = "transfer"  # where there is no device to copy to, whatever that phase does is the loop's own


def _beside_training(stack: Sequence[Frame]) -> bool:
    """Clipping gradients, or an optimizer of torch that no hook saw, is training and not beside it."""
    return not any(is_trainings_own(f.file) for f in stack)


def _before_the_model(stack: Sequence[Frame]) -> bool:
    """What ends with a backward is called forward, batches that the loop makes itself included: they are told from the
    model where another library computes (NumPy, pandas, PIL), outside of any module."""
    return is_the_loops(stack) and is_other_library(stack[0].file) and not in_module(stack)


@dataclass(frozen=True, slots=True)
class OwnCode:
    """Functions of one kind, and all of their time."""

    spots: list[Spot]  # costliest first
    claims: dict[Cell, int]
    details: list[Detail]

    @property
    def ns(self) -> int:
        return sum(self.claims.values())

    @property
    def samples(self) -> int:
        return sum(s.samples for s in self.spots)

    def share(self, *, mechanism: str = "", phase: str = "") -> float:
        """Of their time."""
        ns = sum(ns for (p, m), ns in self.claims.items() if mechanism in ("", m) and phase in ("", p))
        return ns / self.ns if ns else 0.0


def python_cells(facts: Facts) -> dict[Cell, int]:
    """Where the loop's own Python may be."""
    cells = facts.cells("python")
    moving = (_TRANSFER, "python")
    if facts.matrix[moving] and not facts.run.feeds_device:
        cells[moving] = facts.matrix[moving]
    return cells


def native_cells(facts: Facts) -> dict[Cell, Keeps]:
    """Where the loop's own native code may be, and which stacks are; nowhere where it may be waiting for a device that
    was not seen."""
    if facts.run.feeds_device and facts.gpu is None:
        return {}
    where: dict[Cell, Keeps] = {("other", "native"): _beside_training, ("forward", "native"): _before_the_model}
    if not facts.run.feeds_device:
        where[_TRANSFER, "native"] = _beside_training
    return where


def own_code(facts: Facts, mostly: Literal["python", "native"]) -> OwnCode:
    """The functions of which most is Python, or of which most is native code: each is of one kind, with both."""
    where: dict[Cell, Keeps] = dict.fromkeys(python_cells(facts), is_the_loops)
    where |= native_cells(facts)
    functions: dict[tuple[str, str], list[tuple[Cell, Detail, float]]] = {}
    for cell, keep in where.items():
        samples = facts.samples(phases=[cell[0]], states=[cell[1]])
        each = facts.matrix[cell] / max(1, sum(d.ns for d in samples))  # exact time for that of samples
        for d in samples:
            stack = facts.run.stack(d.stack)
            at = user_frame(stack)
            if at is not None and keep(stack):
                functions.setdefault((at.file, named_function(at.function)), []).append((cell, d, d.ns * each))
    claims: dict[Cell, float] = {}
    details: list[Detail] = []
    for parts in functions.values():
        python = sum(ns for (_, mechanism), _, ns in parts if mechanism == "python")
        native = sum(ns for (_, mechanism), _, ns in parts if mechanism == "native")
        if (python >= native) != (mostly == "python"):
            continue
        for cell, d, ns in parts:
            claims[cell] = claims.get(cell, 0.0) + ns
            details.append(d)
    return OwnCode(facts.spots(details), {cell: int(ns) for cell, ns in claims.items()}, details)
