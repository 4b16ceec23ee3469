"""What the loop does before it calls the model, and after its update: told from the model by the lines that it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainperf.findings.frames import (
    below_users,
    calls_module,
    function_of,
    in_autograd_function,
    in_module,
    is_functional,
    is_trainings_own,
    is_users,
    runs_layer,
    user_frame,
)
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.frames import Function
    from trainperf.findings.module_calls import ModuleCalls
    from trainperf.runfile import Frame


@dataclass(slots=True)
class Lines:
    """Of a function's calls of layers."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class BatchWork:
    """Native code in forward of functions that come to their first call of a layer on a later line, outside of any
    module but such as only shape a batch."""

    calls: dict[Function, Lines]
    updates: dict[Function, int]  # the last line of its backward and its optimizer's step
    of_batch: frozenset[Function]
    of_model: frozenset[Function]  # those that may be a part of the model itself
    unsure_ns: int  # of these, what may as well be work on a batch
    modules: ModuleCalls

    def is_one(self, stack: Sequence[Frame]) -> bool:
        if self.modules.shapes_batch(stack):
            return True
        return not _is_trainings(stack) and self.is_before(stack) and _function(stack) in self.of_batch

    def is_before(self, stack: Sequence[Frame]) -> bool:
        """Whether the function comes to its first call of a layer on a later line."""
        return not in_module(stack) and _is_before(stack, self.calls)

    def is_after_update(self, stack: Sequence[Frame]) -> bool:
        """Whether a function that calls the model has made its update, on an earlier line: no loss comes after it."""
        found = None if in_module(stack) or _is_trainings(stack) else _innermost(stack, self.calls)
        if found is None:
            return False
        at, lines = found
        return lines.last <= self.updates.get(function_of(at), -1) < at.line

    def is_between(self, stack: Sequence[Frame]) -> bool:
        """Whether it is on a line between its calls of layers."""
        found = None if in_module(stack) else _innermost(stack, self.calls)
        return found is not None and found[1].first < found[0].line < found[1].last

    def is_between_layers(self, stack: Sequence[Frame]) -> bool:
        """Likewise, of a function that makes no update on a later line: it may be a model, and is not the loop. What is
        computed once more in backward lies within its layers."""
        found = _innermost(stack, self.calls)
        if found is None or found[1].last < self.updates.get(function_of(found[0]), -1):
            return False
        return self.is_between(stack)

    def is_after(self, stack: Sequence[Frame]) -> bool:
        """Whether its last call of one is on an earlier line, and its update is not."""
        found = None if in_module(stack) else _innermost(stack, self.calls)
        return found is not None and found[0].line > found[1].last and not self.is_after_update(stack)

    def may_be_the_model(self, stack: Sequence[Frame]) -> bool:
        return self.is_before(stack) and _function(stack) in self.of_model


def batch_work(facts: Facts) -> BatchWork:
    """A function may be a part of the model where backward is as long as if it went through that too, unless the model
    was seen to be given data: no gradient goes to what comes before it."""
    native = facts.samples(phases=["forward"], states=["native"])
    calls, modules = _calls(facts), facts.module_calls
    model_ns = 0
    ns_of: dict[Function, int] = {}
    functional: dict[Function, int] = {}  # of these, with PyTorch's functions of layers
    given_data: dict[Function, bool | None] = {}  # the modules that are called later
    for d in native:
        stack = facts.run.stack(d.stack)
        if in_module(stack):
            model_ns += 0 if modules.shapes_batch(stack) else d.ns
        elif (found := _innermost(stack, calls)) is not None and found[0].line < found[1].first:
            if _is_trainings(stack):
                continue
            function = _function(stack)
            ns_of[function] = ns_of.get(function, 0) + d.ns
            given_data[function] = modules.is_given_data(function_of(found[0]))
            if any(is_functional(f) and is_trainings_own(f) for f in below_users(stack)):
                functional[function] = functional.get(function, 0) + d.ns
    each = facts.matrix["forward", "native"] / max(1, sum(d.ns for d in native))  # exact time for that of samples
    backward_ns = facts.run.phase_ns("backward")
    functional_ns = sum(functional.values())

    def may_be_the_model(function: Function, ns: int) -> bool:
        if given_data[function]:
            return False
        if facts.inference:  # without a backward, any may be
            return True
        if functional.get(function, 0) >= limit("half_share") * ns:
            return limit("untrained_ratio") * backward_ns >= (functional_ns + model_ns) * each
        return ns > limit("before_model_ratio") * model_ns and backward_ns >= (ns + model_ns) * each

    of_model = frozenset(function for function, ns in ns_of.items() if may_be_the_model(function, ns))
    unsure_ns = sum(ns_of[f] for f in of_model if given_data[f] is None)
    return BatchWork(calls, _updates(facts), frozenset(ns_of) - of_model, of_model, int(unsure_ns * each), modules)


def _calls(facts: Facts) -> dict[Function, Lines]:
    """Of the user's functions that a layer was seen to be called through."""
    calls: dict[Function, Lines] = {}
    for d in facts.samples(phases=["forward"]):
        stack = facts.run.stack(d.stack)
        if not runs_layer(stack) or facts.module_calls.shapes_batch(stack):
            continue
        outermost = max(i for i, f in enumerate(stack) if calls_module(f))
        for f in stack[outermost + 1 :]:
            if is_users(f, stack):
                lines = calls.setdefault(function_of(f), Lines(f.line, f.line))
                lines.first, lines.last = min(f.line, lines.first), max(f.line, lines.last)
    return calls


def _updates(facts: Facts) -> dict[Function, int]:
    """Of the user's functions that run a backward, or call who does; empty where no optimizer steps: what comes after a
    backward may be the update itself."""
    if not facts.run.steps.optimizer_steps.any():
        return {}
    lines: dict[Function, dict[int, int]] = {}  # ns
    for d in facts.samples(phases=["backward", "optimizer"]):
        stack = facts.run.stack(d.stack)
        for f in stack:
            if is_users(f, stack):
                of = lines.setdefault(function_of(f), {})
                of[f.line] = of.get(f.line, 0) + d.ns
    # A look that took a moment may show what comes after.
    return {
        function: max(line for line, ns in of.items() if ns >= limit("felt_share") * sum(of.values()))
        for function, of in lines.items()
        if any(of.values())
    }


def _innermost(stack: Sequence[Frame], calls: dict[Function, Lines]) -> tuple[Frame, Lines] | None:
    """The innermost of the functions through which layers are called, and the lines of its calls."""
    at = next((f for f in stack if function_of(f) in calls and is_users(f, stack)), None)
    return None if at is None else (at, calls[function_of(at)])


def _is_trainings(stack: Sequence[Frame]) -> bool:
    """PyTorch's functions of layers are asked of a batch as well: a morphology of masks is a max_pool2d."""
    own = (f for f in below_users(stack) if is_trainings_own(f) and not is_functional(f))
    return in_autograd_function(stack) or any(own)


def _is_before(stack: Sequence[Frame], calls: dict[Function, Lines]) -> bool:
    found = _innermost(stack, calls)
    return found is not None and found[0].line < found[1].first


def _function(stack: Sequence[Frame]) -> Function:
    """Of the innermost frame of the user's, which is there: the stack comes to a layer's caller."""
    at = user_frame(stack)
    assert at is not None
    return function_of(at)
