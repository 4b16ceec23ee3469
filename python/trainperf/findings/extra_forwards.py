"""Models that run outside of the training step: evaluation that no switch of mode shows, a second forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainperf.findings.frames import calls_module, function_of, in_module, is_the_loops, runs_layer, user_frame
from trainperf.findings.functions import Functions

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.frames import Function
    from trainperf.findings.model import Cell
    from trainperf.runfile import Detail, Frame


@dataclass(frozen=True, slots=True)
class ExtraForwards(Functions):
    """Those that call modules outside of every phase, and the time in these."""

    may_train: bool  # backward is as long as if it went through these modules too


def extra_forwards(facts: Facts) -> ExtraForwards | None:
    """None where there are none, where layers were not seen to run in forward (it may begin elsewhere), and with a
    device, on which time of the host is not time of the model.

    A forward that ends with a backward is `forward`, unless another batch is fetched between the two: the backward of
    such a one is as long as if it went through all.
    """
    forwards = facts.samples(phases=["forward"], states=["native"])
    if facts.run.feeds_device or not any(runs_layer(facts.run.stack(d.stack)) for d in forwards):
        return None
    callers = {
        _function(caller)
        for d in facts.samples(phases=["other"])
        if runs_layer(stack := facts.run.stack(d.stack)) and (caller := _of_caller(stack))
    }
    claims: dict[Cell, int] = {}
    details: list[Detail] = []
    for state in ("native", "python"):
        samples = facts.samples(phases=["other"], states=[state])
        mine = [d for d in samples if _is_one(_of_caller(facts.run.stack(d.stack)), callers)]
        if mine:
            whole, part = sum(d.ns for d in samples), sum(d.ns for d in mine)
            claims["other", state] = facts.matrix["other", state] * part // max(1, whole)
            details += mine
    if not claims:
        return None
    of_model = sum(d.ns for d in forwards if in_module(facts.run.stack(d.stack)))
    forward_ns = facts.matrix["forward", "native"] * of_model // max(1, sum(d.ns for d in forwards))
    may_train = facts.run.phase_ns("backward") >= forward_ns + sum(claims.values())
    return ExtraForwards(facts.spots(details, seen_from=_of_caller), claims, may_train)


def _of_caller(stack: Sequence[Frame]) -> tuple[Frame, ...]:
    """The stack of what called the outermost module; empty where none was called, or by no function of the user's."""
    last = max((i for i, f in enumerate(stack) if calls_module(f)), default=None)
    caller = tuple(stack[last + 1 :]) if last is not None else ()
    return caller if user_frame(caller) is not None else ()


def _is_one(caller: Sequence[Frame], callers: set[Function]) -> bool:
    return bool(caller) and is_the_loops(caller) and _function(caller) in callers


def _function(caller: Sequence[Frame]) -> Function:
    at = user_frame(caller)
    assert at is not None  # _of_caller() is empty otherwise
    return function_of(at)
