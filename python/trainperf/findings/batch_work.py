"""What the loop does with a batch before it calls the model: told from the model by the lines that the loop runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    from trainperf.runfile import Frame


@dataclass(frozen=True, slots=True)
class BatchWork:
    """Native code in forward, outside of any module, of functions that come to their first call of a layer on a later
    line."""

    first: dict[Function, int]  # the line of that call
    of_batch: frozenset[Function]
    of_model: frozenset[Function]  # those that may be a part of the model itself

    def is_one(self, stack: Sequence[Frame]) -> bool:
        if in_module(stack) or in_autograd_function(stack) or any(map(is_trainings_own, below_users(stack))):
            return False
        return _is_before(stack, self.first) and _function(stack) in self.of_batch

    def follows(self, stacks: Iterable[Sequence[Frame]]) -> bool:
        """Whether functions that call layers run them on later lines, all of them, than their first call of one."""
        after = [_is_after(stack, self.first) for stack in stacks if not in_module(stack)]
        return bool(after) and all(after)

    def may_be_the_model(self, stack: Sequence[Frame]) -> bool:
        return _is_before(stack, self.first) and _function(stack) in self.of_model


def batch_work(facts: Facts) -> BatchWork:
    """A function may be a part of the model where it runs PyTorch's functional layers, or is most of what is called
    forward and backward is as long as if it went through that too."""
    native = facts.samples(phases=["forward"], states=["native"])
    first = _first_calls(facts)
    model_ns = 0
    ns_of: dict[Function, int] = {}
    with_layers: set[Function] = set()
    for d in native:
        stack = facts.run.stack(d.stack)
        if in_module(stack):
            model_ns += d.ns
        elif _is_before(stack, first):
            function = _function(stack)
            own = [f for f in below_users(stack) if is_trainings_own(f)]
            if any(is_functional(f) for f in own):
                with_layers.add(function)
            elif not own and not in_autograd_function(stack):
                ns_of[function] = ns_of.get(function, 0) + d.ns
    each = facts.matrix["forward", "native"] / max(1, sum(d.ns for d in native))  # exact time for that of samples
    backward_ns = facts.run.phase_ns("backward")
    of_model = with_layers | {
        function
        for function, ns in ns_of.items()
        if ns > limit("before_model_ratio") * model_ns and backward_ns >= (ns + model_ns) * each
    }
    return BatchWork(first, frozenset(ns_of.keys() - of_model), frozenset(of_model))


def _first_calls(facts: Facts) -> dict[Function, int]:
    """Of the user's functions that a layer was seen to be called through: the first line of such a call."""
    first: dict[Function, int] = {}
    for d in facts.samples(phases=["forward"]):
        stack = facts.run.stack(d.stack)
        if not runs_layer(stack):
            continue
        outermost = max(i for i, f in enumerate(stack) if calls_module(f))
        for f in stack[outermost + 1 :]:
            if is_users(f, stack):
                function = function_of(f)
                first[function] = min(f.line, first.get(function, f.line))
    return first


def _is_before(stack: Sequence[Frame], first: dict[Function, int]) -> bool:
    """By the innermost of the functions through which layers are called."""
    for f in stack:
        line = first.get(function_of(f))
        if line is not None and is_users(f, stack):
            return f.line < line
    return False


def _is_after(stack: Sequence[Frame], first: dict[Function, int]) -> bool:
    return any(f.line > first.get(function_of(f), f.line) and is_users(f, stack) for f in stack)


def _function(stack: Sequence[Frame]) -> Function:
    """Of the innermost frame of the user's, which is there: the stack comes to a layer's caller."""
    at = user_frame(stack)
    assert at is not None
    return function_of(at)
