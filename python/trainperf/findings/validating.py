"""What the user's functions do in validations, beside the model and its data: metrics, hooks, plots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainperf.findings import cpus, loaders
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
from trainperf.findings.syscalls import call_of, waiting_kind
from trainperf.findings.thresholds import limit
from trainperf.findings.weights import weighed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trainperf.findings.facts import Facts, Spot
    from trainperf.findings.frames import Function
    from trainperf.findings.model import Cell
    from trainperf.runfile import Detail, Frame


_OF_DATA = {"__iter__", "__next__", "__getitem__", "__getitems__"}


@dataclass(frozen=True, slots=True)
class OwnWork:
    """Of one function, the costliest."""

    spot: Spot
    share: (
        float  # of all validations' time; of what they wait for a CPU or the GIL as much, since they do so as they run
    )


def own_work(facts: Facts) -> OwnWork | None:
    """None: most of the validations is the model's, its data's, or not known."""
    cells = facts.cells("validation")
    seen = weighed(facts.samples(phases=["validation"]), cells)
    is_no_models = _is_no_models(facts)
    told = [d for d in seen if _is_own_work(facts, d) and is_no_models(facts.run.stack(d.stack), d.state)]
    spots = facts.spots(told)
    if not spots:
        return None
    top = spots[0]
    mine = [d for d in told if facts.is_at(d, top)]
    share = sum(d.ns for d in mine) / max(1, sum(cells.values()))
    if sum(d.count for d in mine) < limit("min_samples") or share < limit("half_share"):
        return None
    return OwnWork(top, share)


def its_waits(facts: Facts) -> dict[Cell, int]:
    """What holds the training thread up in validations, and would go with them: what no finding has told of it yet;
    the waits for a CPU where these are for the validation's own workers, or too short to be told in the whole run."""
    cells = [("validation", "gil_wait"), ("validation", "gc")]
    left = {cell: facts.ledger.left(cell) for cell in cells}
    waits = facts.waits_for_cpu()
    if facts.share(sum(waits.values())) < limit("descheduled_warn_share") or _waits_for_its_workers(facts):
        left |= {cell: ns for cell, ns in waits.items() if cell[0] == "validation"}
    return {cell: ns for cell, ns in left.items() if ns > 0}


def _waits_for_its_workers(facts: Facts) -> bool:
    """Not where others take the CPUs, or torch has more threads than there are, or who takes them is not known."""
    wants, load = cpus.demand(facts), cpus.load(facts)
    if wants.certain or not load.known or cpus.whose(wants, load) not in ("oversubscribed", "unclear"):
        return False
    return any(loaders.only_validates(v) and loaders.num_workers(v) for v in facts.run.loaders.values())


def _is_no_models(facts: Facts) -> Callable[[Sequence[Frame], str], bool]:
    """Of which stacks and states. Where no layer was seen the model may be any function, one that calls modules may
    compute with what they return, and all but Python may wait for a device that was not seen."""
    unseen = facts.run.feeds_device and facts.gpu is None
    layers = any(runs_layer(facts.run.stack(d.stack)) for d in facts.samples())
    calling = facts.once(functions_that_call_modules)

    def keep(stack: Sequence[Frame], state: str) -> bool:
        at = user_frame(stack)
        beside = of_metric(stack) or (layers and at is not None and function_of(at) not in calling)
        return beside and (state == "python" or not unseen)

    return keep


def _is_own_work(facts: Facts, detail: Detail) -> bool:
    stack = facts.run.stack(detail.stack)
    if user_frame(stack) is None or in_loader(stack) or not is_the_loops(stack):
        return False
    if in_module(stack) and not of_metric(stack):
        return False
    if any(f.function.rpartition(".")[2] in _OF_DATA for f in stack):
        return False
    # For another thread, which may make the data.
    return not (detail.state == "blocked" and waiting_kind(call_of([detail], facts.machine)) == "lock")


def stretch(facts: Facts) -> str:
    """The outermost function of the user's that most of the validations are in, and little else: "collect"; "" for
    none."""
    whole: dict[Function, int] = {}
    within: dict[Function, int] = {}
    outermost: dict[Function, int] = {}
    for d in facts.samples():
        stack = facts.run.stack(d.stack)
        mine = [function_of(f) for f in stack if is_users(f, stack)]
        for function in set(mine):
            whole[function] = whole.get(function, 0) + d.ns
            within[function] = within.get(function, 0) + (d.ns if d.phase == "validation" else 0)
    for d in facts.samples(phases=["validation"]):
        stack = facts.run.stack(d.stack)
        for f in reversed(stack):
            function = function_of(f)
            if is_users(f, stack) and within[function] >= limit("held_share") * whole[function]:
                outermost[function] = outermost.get(function, 0) + d.ns
                break
    most = max(outermost, key=lambda function: outermost[function], default=None)
    validations = sum(d.ns for d in facts.samples(phases=["validation"]))
    return "" if most is None or outermost[most] < limit("most_share") * validations else most[1]


def data_made_in(facts: Facts) -> Spot | None:
    """The user's function in which most of validations' data is made on the training thread; None where it is not
    known."""
    fetches = [d for d in facts.samples(phases=["validation"]) if in_loader(facts.run.stack(d.stack))]
    spots = facts.spots(fetches, keep=_in_fetch)
    if not spots or spots[0].samples < limit("min_samples"):
        return None
    return spots[0] if spots[0].ns >= limit("half_share") * sum(d.ns for d in fetches) else None


def _in_fetch(stack: Sequence[Frame]) -> bool:
    at = next((i for i, f in enumerate(stack) if is_users(f, stack)), len(stack))
    return in_loader(stack[at:])
