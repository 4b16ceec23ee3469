"""What the user's functions do in validations, beside the model and its data: metrics, hooks, plots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainperf.findings.frames import (
    function_of,
    in_loader,
    in_module,
    is_the_loops,
    is_users,
    of_metric,
    runs_layer,
    user_frame,
)
from trainperf.findings.own_code import functions_that_call_modules
from trainperf.findings.thresholds import limit
from trainperf.findings.weights import weighed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trainperf.findings.facts import Facts, Spot
    from trainperf.findings.frames import Function
    from trainperf.runfile import Frame


@dataclass(frozen=True, slots=True)
class OwnWork:
    """Of one function, the costliest."""

    spot: Spot
    share: float  # of all validations' time


def own_work(facts: Facts) -> OwnWork | None:
    """None: most of the validations is the model's, its data's, or not known."""
    cells = facts.cells("validation")
    seen = weighed(facts.samples(phases=["validation"]), cells)
    told_native = _told_native(facts)
    told = [d for d in seen if _is_own_work(facts.run.stack(d.stack), d.state, told_native)]
    spots = facts.spots(told)
    if not spots:
        return None
    top = spots[0]
    mine = [d for d in told if facts.is_at(d, top)]
    share = sum(d.ns for d in mine) / max(1, sum(cells.values()))
    if sum(d.count for d in mine) < limit("min_samples") or share < limit("half_share"):
        return None
    return OwnWork(top, share)


def _told_native(facts: Facts) -> Callable[[Function], bool]:
    """Of which functions what is not Python is no model's. Where no layer was seen the model may be any function, one
    that calls modules may compute with what they return, and all may wait for a device that was not seen."""
    if facts.run.feeds_device and facts.gpu is None:
        return lambda function: False
    if not any(runs_layer(facts.run.stack(d.stack)) for d in facts.samples()):
        return lambda function: False
    calling = functions_that_call_modules(facts)
    return lambda function: function not in calling


def _is_own_work(stack: Sequence[Frame], state: str, told_native: Callable[[Function], bool]) -> bool:
    at = user_frame(stack)
    if at is None or in_loader(stack) or not is_the_loops(stack):
        return False
    if in_module(stack) and not of_metric(stack):
        return False
    return state == "python" or told_native(function_of(at))


def data_made_in(facts: Facts) -> Spot | None:
    """The user's function in which validations' data is made on the training thread; None where it is not known."""
    spots = facts.spots(facts.samples(phases=["validation"]), keep=_in_fetch)
    return spots[0] if spots and spots[0].samples >= limit("min_samples") else None


def _in_fetch(stack: Sequence[Frame]) -> bool:
    at = next((i for i, f in enumerate(stack) if is_users(f, stack)), len(stack))
    return in_loader(stack[at:])
