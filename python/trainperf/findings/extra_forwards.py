"""Models that run outside of the training step: evaluation that no switch of mode shows, a second forward pass."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from trainperf.findings.cpu_use import usable_cpus
from trainperf.findings.frames import (
    calls_module,
    function_of,
    in_module,
    is_the_loops,
    of_metric,
    runs_layer,
    user_frame,
)
from trainperf.findings.model import Said
from trainperf.findings.module_calls import ModuleCalls
from trainperf.findings.places import Functions
from trainperf.findings.text import Count, Ns, Number
from trainperf.findings.thresholds import limit
from trainperf.findings.vocabulary import PHASES
from trainperf.findings.weights import weighed

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.frames import Function
    from trainperf.findings.model import Cell
    from trainperf.runfile import Detail, Frame

    Line = tuple[Function, int]

_STATES: Final = ("native", "python")
_MOST_PLACES: Final = 8


@dataclass(frozen=True, slots=True)
class ExtraForwards(Functions):
    """Those that call modules that no backward goes through, and the time in these."""

    may_train: bool  # backward is as long as if it went through these modules too
    why: Said  # no backward is thought to
    steps: int = 0  # in few steps only; 0: in all
    needed_ns: int = 0  # the part of it that a backward goes through
    frozen: tuple[str, ...] = ()  # layers of the trained model itself, which these calls run; "": not known which

    @property
    def within_step(self) -> bool:
        """In what counts as forward, of each step."""
        return not self.steps and any(phase == "forward" for phase, _ in self.claims)


def extra_forwards(facts: Facts) -> ExtraForwards | None:
    """The larger of what runs outside of every phase and what counts as forward. None where there are none, where
    layers were not seen to run in forward (it may begin elsewhere), and with a device, on which time of the host is not
    time of the model."""
    forwards = facts.samples(phases=["forward"], states=["native"])
    if facts.run.feeds_device or not any(runs_layer(facts.run.stack(d.stack)) for d in forwards):
        return None
    of_few = _of_few_steps(facts)
    found = [f for f in (_outside(facts, forwards), _untrained(facts), of_few) if f is not None]
    largest = max(found, key=lambda f: (not f.may_train, f.ns), default=None)
    # Which steps have it says more, and its time is exact.
    return of_few if of_few is not None and largest is not None and _is_same(of_few, largest) else largest


def _is_same(one: ExtraForwards, other: ExtraForwards) -> bool:
    """By place, and about as much."""
    at, there = ({function_of(s.frame) for s in of.spots} for of in (one, other))
    return bool(at & there) and one.ns >= (1 - limit("same_time_share")) * other.ns


def _outside(facts: Facts, forwards: Sequence[Detail]) -> ExtraForwards | None:
    """A forward that ends with a backward is `forward`, unless another batch is fetched between the two: the backward
    of such a one is as long as if it went through all."""
    stacks = [facts.run.stack(d.stack) for d in facts.samples(phases=["other"])]
    callers = {_function(stack) for stack in stacks if runs_layer(stack)} - {None}
    claims, details = _claims(facts, "other", lambda stack: _function(stack) in callers)
    if not claims:
        return None
    of_model = sum(d.ns for d in forwards if in_module(facts.run.stack(d.stack)))
    forward_ns = facts.matrix["forward", "native"] * of_model // max(1, sum(d.ns for d in forwards))
    long_enough = facts.run.phase_ns("backward") >= forward_ns + sum(claims.values())
    gradients = {facts.once(ModuleCalls).has_gradient(facts.run.stack(d.stack)) for d in details} - {None}
    if long_enough and gradients == {True}:  # two models that are trained in turn, or a batch fetched between
        return None
    may_train = long_enough and not gradients
    why = Said("forward_outside")
    return ExtraForwards(facts.spots(details, seen_from=_of_caller), claims, may_train, why)


def _untrained(facts: Facts) -> ExtraForwards | None:
    """Whatever ends with a backward counts as forward; the lines whose layers run for much longer than all of backward
    takes have none, or for little of it: rollouts, a frozen teacher or backbone, evaluation without a loader. What the
    user's code does between the layers, or in hooks of theirs, has no backward in any model. Not told where PyTorch has
    more threads than CPUs: either phase then waits for them, spinning, as long as chance has it."""
    if facts.torch_threads > usable_cpus(facts.run) > 0:
        return None
    forward = _forward(facts)
    whole_ns, count = sum(d.ns for d in forward), sum(d.count for d in forward)
    ns, frozen = _of_lines(facts, forward)
    backward_ns = sum(facts.matrix["backward", state] for state in _STATES)

    def at_least(of_line: int) -> float:
        """Forward is exact, the line's share of it known by `count` samples: less their standard error."""
        share = min(max(of_line / max(1, whole_ns), 0.0), 1.0)  # in a damaged file it may be anything
        return whole_ns * (share - math.sqrt(share * (1 - share) / max(1, count)))

    long = {called for called, its in ns.items() if at_least(its) > limit("untrained_ratio") * backward_ns > 0}
    # The forward of what is trained is needed: it is spoken of where its layers are frozen, and nothing else is long.
    mine = {called for called in long if not called.is_trained} or {called for called in long if frozen[called]}
    claims, details = _claims(facts, "forward", lambda stack: _called(facts, stack) in mine)
    if not claims:
        return None
    why = Said("forward_untrained", {"times": Number(sum(claims.values()) / backward_ns)})
    found = ExtraForwards(facts.spots(details, seen_from=_of_line), claims, False, why)
    # Backward goes through some of a line that is the only one: half of it is the least that a forward takes.
    needed_ns = 0 if ns.keys() - mine else backward_ns // 2
    return replace(found, needed_ns=needed_ns, frozen=tuple(dict.fromkeys(n for of in mine for n in frozen[of])))


def _of_lines(facts: Facts, forward: Sequence[Detail]) -> tuple[dict[_Called, int], dict[_Called, tuple[str, ...]]]:
    """Of each line that calls modules: its time in layers, and of those that are trained the frozen ones."""
    ns: dict[_Called, int] = {}
    frozen: dict[_Called, tuple[str, ...]] = {}
    for d in forward:
        stack = facts.run.stack(d.stack)
        if runs_layer(stack) and _of_caller(stack) and (called := _called(facts, stack)) is not None:
            ns[called] = ns.get(called, 0) + d.ns
            frozen[called] = facts.once(ModuleCalls).frozen(stack) if called.is_trained else ()
    return ns, frozen


class _Called(NamedTuple):
    line: Line
    is_trained: bool  # it is known that a backward goes through


def _called(facts: Facts, stack: Sequence[Frame]) -> _Called | None:
    """Not for what shapes a batch: that is no model."""
    line = _line(stack)
    if line is None or facts.once(ModuleCalls).shapes_batch(stack):
        return None
    return _Called(line, facts.once(ModuleCalls).is_trained(stack))


def _of_few_steps(facts: Facts) -> ExtraForwards | None:
    """Where few steps have a forward that is much longer than most steps', and no longer backward: evaluation without a
    loader, and with gradients. What is called there beside is what takes about so long in all. Not told where threads
    wait for a CPU in either phase, as above."""
    if facts.torch_threads > usable_cpus(facts.run) > 0:
        return None
    steps, extra_ns = _longer_steps(facts)
    if not steps or 2 * steps >= facts.steps:
        return None
    # Most of it is in layers, and there are others left for the backward to go through.
    layers_ns = sum(d.ns for d in _forward(facts) if in_module(facts.run.stack(d.stack)))
    needed_ns = limit("felt_share") * sum(facts.matrix["backward", state] for state in _STATES)
    fitting = [
        some
        for some in _as_long_as(extra_ns, facts)
        if 2 * (of_some := sum(p.layers_ns for p in some)) >= sum(p.ns for p in some)
        and layers_ns - of_some >= needed_ns
    ]
    if not fitting:
        return None
    # Of what is called in few steps a step has several samples.
    found = max(fitting, key=lambda some: sum(p.samples for p in some) / max(1, sum(p.steps for p in some)))
    whole = sum(place.ns for place in found)
    claims = {
        ("forward", state): min(
            extra_ns * sum(p.by_state.get(state, 0) for p in found) // whole, facts.matrix["forward", state]
        )
        for state in _STATES
    }
    longer = Ns(sum(claims.values()) / steps)
    why = Said("forward_in_few", {"few": Count(steps), "steps": Count(facts.steps), "longer": longer})
    details = [d for place in found for d in place.details]
    return ExtraForwards(facts.spots(details, seen_from=_of_line), claims, False, why, steps)


def _longer_steps(facts: Facts) -> tuple[int, int]:
    """How many have a much longer forward, and by how much together."""
    table = facts.run.steps
    forward, backward = (table.phases_ns[:, PHASES.index(phase)] / table.count for phase in ("forward", "backward"))
    more = forward - np.median(forward)
    few = (more > limit("longer_forward_ratio") * backward) & (table.backwards > 0) & (table.compile_ns == 0)
    few[:1] = False  # what is made at the first call
    return int(table.count[few].sum()), int((more * table.count)[few].sum())


def _as_long_as(ns: int, facts: Facts) -> list[tuple[_Place, ...]]:
    """The fewest places that take about so long together: each set that does, and none that has one of these in it."""
    places = sorted(_places(facts).values(), key=lambda place: -place.ns)[:_MOST_PLACES]
    found: list[tuple[_Place, ...]] = []
    for n in range(1, len(places) + 1):
        for some in itertools.combinations(places, n):
            off = abs(sum(place.ns for place in some) - ns) / ns
            if off <= limit("same_time_share") and not any(set(fewer) <= set(some) for fewer in found):
                found.append(some)
    return found


@dataclass(eq=False, slots=True)
class _Place:
    """A function; of one that calls backward itself, a line."""

    by_state: dict[str, int] = field(default_factory=dict)  # ns in forward
    layers_ns: int = 0  # in modules that run layers
    samples: int = 0
    steps: int = 0
    details: list[Detail] = field(default_factory=list)

    @property
    def ns(self) -> int:
        return sum(self.by_state.values())


def _places(facts: Facts) -> dict[Line, _Place]:
    """Where the user's code calls modules in forward, or computes beside them."""
    trains = {_user_function(facts.run.stack(d.stack)) for d in facts.samples(phases=["backward"])}
    places: dict[Line, _Place] = {}
    for d in _forward(facts):
        stack = facts.run.stack(d.stack)
        line = _line(stack)
        if line is None:
            continue
        place = places.setdefault(line if line[0] in trains else (line[0], 0), _Place())
        place.by_state[d.state] = place.by_state.get(d.state, 0) + d.ns
        place.layers_ns += d.ns if in_module(stack) else 0
        place.samples, place.steps = place.samples + d.count, place.steps + d.steps
        place.details.append(d)
    return places


def _forward(facts: Facts) -> list[Detail]:
    """Samples of it on the CPU, weighed by its exact times."""
    cells: dict[Cell, int] = {("forward", state): facts.matrix["forward", state] for state in _STATES}
    return weighed(facts.samples(phases=["forward"], states=_STATES), cells)


def _user_function(stack: Sequence[Frame]) -> Function | None:
    at = user_frame(stack)
    return function_of(at) if at is not None else None


def _claims(
    facts: Facts, phase: str, is_one: Callable[[Sequence[Frame]], bool]
) -> tuple[dict[Cell, int], list[Detail]]:
    """What of a phase's exact time on the CPU has such stacks, and the samples of it."""
    claims: dict[Cell, int] = {}
    details: list[Detail] = []
    for state in _STATES:
        samples = facts.samples(phases=[phase], states=[state])
        mine = [d for d in samples if is_one(facts.run.stack(d.stack))]
        if mine:
            whole, part = sum(d.ns for d in samples), sum(d.ns for d in mine)
            claims[phase, state] = facts.matrix[phase, state] * part // max(1, whole)
            details += mine
    return claims, details


def _of_caller(stack: Sequence[Frame]) -> tuple[Frame, ...]:
    """The stack of what called the outermost module; empty where none was called, or a metric, or by no function of the
    user's."""
    last = max((i for i, f in enumerate(stack) if calls_module(f)), default=None)
    caller = tuple(stack[last + 1 :]) if last is not None and not of_metric(stack) else ()
    return caller if is_the_loops(caller) else ()


def _of_line(stack: Sequence[Frame]) -> tuple[Frame, ...]:
    """The same, or the stack itself where no module was called."""
    if in_module(stack) or user_frame(stack) is None:
        return _of_caller(stack)
    return tuple(stack)


def _function(stack: Sequence[Frame]) -> Function | None:
    """Of the user's, that called the outermost module."""
    return _user_function(_of_caller(stack))


def _line(stack: Sequence[Frame]) -> Line | None:
    at = user_frame(_of_line(stack))
    return (function_of(at), at.line) if at is not None else None
