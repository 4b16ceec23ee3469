"""What one of the loop's own functions does, and when: by what was seen of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from trainperf.findings.frames import (
    below_users,
    calls_module,
    function_of,
    of_average,
    of_loss,
    of_metric,
    reads_module,
    runs_layer,
    user_frame,
)
from trainperf.findings.loaders import only_validates, with_workers_of
from trainperf.findings.own_code import (
    FORWARD,
    beside_training,
    functions_that_call_modules,
    hooks,
    native_cells,
    of_arrays,
)
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts, Spot
    from trainperf.findings.own_code import OwnCode
    from trainperf.runfile import Detail, Frame


def of_function(facts: Facts, mine: OwnCode, spot: Spot) -> list[tuple[Detail, Sequence[Frame]]]:
    """What was seen of one of these functions, with the stacks."""
    function = function_of(spot.frame)
    seen = [(d, facts.run.stack(d.stack)) for d in mine.details]
    return [
        (d, s) for d, s in seen if (at := user_frame(mine.seen_from(s))) is not None and function_of(at) == function
    ]


def of_library(facts: Facts, mine: OwnCode, spot: Spot) -> str:
    """What most of one of these functions is that it asks of a library: "metrics", "average"."""
    seen = of_function(facts, mine, spot)
    for is_one, asked in ((of_metric, "metrics"), (of_average, "average")):
        if sum(d.ns for d, s in seen if is_one(s)) > limit("most_share") * sum(d.ns for d, _ in seen):
            return asked
    return ""


def works_on_weights(facts: Facts, mine: OwnCode, spot: Spot) -> bool:
    """One of these functions was notably often seen to ask modules for what they keep: an average of the weights, or a
    copy."""
    seen = of_function(facts, mine, spot)
    reads = sum(d.ns for d, stack in seen if any(map(reads_module, below_users(stack))))
    return reads >= limit("warn_share") * sum(d.ns for d, _ in seen)


def computes_loss(facts: Facts, mine: OwnCode, spot: Spot) -> bool:
    """One of these functions was notably often seen to ask PyTorch for a loss, and never to run a layer, as a whole
    training_step does."""
    function = function_of(spot.frame)
    stacks = [(d, facts.run.stack(d.stack)) for d in facts.samples()]
    if any(runs_layer(s) and function in map(function_of, s) for _, s in stacks):
        return False
    of_it = [(d, s) for d, s in stacks if (at := user_frame(mine.seen_from(s))) and function_of(at) == function]
    return 0 < limit("warn_share") * sum(d.ns for d, _ in of_it) <= sum(d.ns for d, s in of_it if of_loss(s))


def may_be_of_tensors(facts: Facts, mine: OwnCode, spot: Spot) -> bool:
    """Of one of these functions notably much is told as of arrays on lines of its own: tensors would look the same."""
    seen, is_of_arrays = of_function(facts, mine, spot), of_arrays(facts)
    bare = sum(d.ns for d, s in seen if d.phase == "forward" and not below_users(s) and is_of_arrays(s))
    return bare >= limit("warn_share") * sum(d.ns for d, _ in seen)


class AroundTheModel(NamedTuple):
    """Shares of what was seen, by the lines on which a function calls the model; the rest is on none of these."""

    before: float
    between: float  # two calls
    after: float  # and before the backward
    updated: float  # after the update


def around_the_model(facts: Facts, details: Sequence[Detail]) -> AroundTheModel:
    whole, work = sum(d.ns for d in details), facts.batch_work
    forward = [(d.ns, facts.run.stack(d.stack)) for d in details if d.phase == "forward"]
    where = (work.is_before, work.is_between, work.is_after, work.is_after_update)
    return AroundTheModel(*(sum(ns for ns, stack in forward if at(stack)) / max(1, whole) for at in where))


def may_free_a_batch(facts: Facts, mine: OwnCode, spot: Spot) -> bool:
    """Of the loop itself nearly all was seen on one line, with no function of Python's below it, and workers make the
    batches: their memory is given back where the last name of one goes, on the CPU and with the GIL held, which looks
    like Python."""
    function = function_of(spot.frame)
    if spot.frame.function != function[1]:  # a generator's own frame
        return False
    if function not in functions_that_call_modules(facts):
        return False
    if all(only_validates(v) for v in with_workers_of(facts)):
        return False
    seen = of_function(facts, mine, spot)
    of_line = sum(d.ns for d, stack in seen if stack[0] == spot.frame)
    return of_line >= limit("held_share") * sum(d.ns for d, _ in seen)


def untold_of_line(facts: Facts, mine: OwnCode, spot: Spot) -> int:
    """ns of native code that the function's line runs before the backward beside what is told; 0 where it was seen to
    call a module."""
    if FORWARD not in native_cells(facts):
        return 0
    told = {d.stack for d in mine.details if (d.phase, d.state) == FORWARD}
    samples = facts.samples(phases=["forward"], states=["native"])
    ns = 0
    for d in samples:
        stack = facts.run.stack(d.stack)
        at = user_frame(stack)
        if at is None or (at.file, at.line) != (spot.frame.file, spot.frame.line):
            continue
        if any(calls_module(f) for f in stack):
            return 0
        ns += 0 if d.stack in told or not beside_training(stack) else d.ns
    return ns * facts.matrix[FORWARD] // max(1, sum(d.ns for d in samples))


def share_in_hooks(facts: Facts, mine: OwnCode) -> float:
    in_hook = hooks(facts)
    whole = sum(d.ns for d in mine.details)
    ns = sum(d.ns for d in mine.details if d.phase == "forward" and in_hook(facts.run.stack(d.stack)))
    return ns / whole if whole else 0.0
