"""TP309, TP311 and TP312: what the training thread runs on the CPU besides the program's own code."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from trainperf.findings import frames, framework, loaders
from trainperf.findings.cpus import usable_cpus
from trainperf.findings.frames import (
    FrameLike,
    in_module,
    in_optimizer,
    in_own_optimizer,
    in_profiler,
    is_framework,
    is_the_loops,
)
from trainperf.findings.model import Claim, Diagnosis, Limits, Outcome, Params, Said, Saves, Sure, Unsure
from trainperf.findings.module_calls import ModuleCalls
from trainperf.findings.places import Functions, total, weighed
from trainperf.findings.rule import rule
from trainperf.findings.text import Count, Names, Ns, Number, Share
from trainperf.findings.thresholds import limit
from trainperf.runfile.schema import PHASES

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts, Spot
    from trainperf.findings.frames import Function, Label
    from trainperf.findings.model import Cell
    from trainperf.runfile import Detail, Frame

    Line = tuple[Function, int]

# -- the Python of PyTorch


@rule("TP309", "framework-python", Limits(limit("framework_share"), None), needs=("gil_holds",))
def framework_python(facts: Facts, limits: Limits) -> Outcome:
    """The Python of PyTorch, and of frameworks on it, is much of the step. Said, never warned of."""
    cells = facts.cells("python")
    samples = facts.samples(phases={p for p, _ in cells}, states=["python"])
    if sum(d.count for d in samples) < limit("min_samples"):
        return None
    theirs = _of_frameworks(facts, samples)
    whole, other = sum(d.ns for d in samples), sum(d.ns for d in theirs)
    claims = loaders.spread(cells, int(sum(cells.values()) * other / whole) if whole else 0)
    profilers = [d for d in theirs if in_profiler(facts.run.stack(d.stack))]
    profiling = facts.part_of(cells, set(profilers).__contains__).claims
    # It is told by itself where there is not as much beside it as would be told.
    if facts.grade(sum(claims.values()) - sum(profiling.values()), limits) is None:
        worth_it = facts.grade(sum(profiling.values()), Limits(limit("warn_share"), None)) is not None
        if worth_it and sum(d.count for d in profilers) >= limit("min_samples"):
            return _in_framework(facts, "profiler", profiling, profilers)
    if facts.grade(sum(claims.values()), limits) is None:
        return None
    variant, share = _part_of_most(facts, theirs)
    # What makes each operation keep a stack comes first, and is all of it.
    anomaly = bool(facts.run.anomaly_percent)
    of_profiler = Share(sum(d.ns for d in profilers) / other)
    params: Params = {
        "anomaly": anomaly,
        "profiler": of_profiler if of_profiler >= limit("warn_share") else None,
        "optimizer": _faster_optimizer(facts),
    }
    return _in_framework(facts, variant, claims, theirs, params, saved=1.0 if anomaly else share)


def _of_frameworks(facts: Facts, samples: Sequence[Detail]) -> list[Detail]:
    """A stack that was not read, or of libraries alone, is nobody's: whose it is cannot be told."""
    calls, severity = framework.log_calls(facts)
    told = set(calls.details) if severity is not None else set()

    def is_one(stack: Sequence[Frame]) -> bool:
        theirs = not is_the_loops(stack) and any(is_framework(f.file) for f in stack)
        return theirs and not frames.in_anomaly(stack)  # TP313

    return [d for d in samples if d not in told and is_one(facts.run.stack(d.stack))]


def _in_framework(
    facts: Facts,
    variant: str,
    claims: dict[Cell, int],
    seen: Sequence[Detail],
    params: Params | None = None,
    *,
    saved: float = 1.0,
) -> Diagnosis:
    caller, count = _caller(facts, seen), sum(d.count for d in seen)
    return Diagnosis(
        variant=variant,
        severity="info",
        claim=Claim("python", claims),
        params={
            "place": facts.label(caller),
            "place_and_caller": facts.label(caller, with_caller=True),
            "place_share": Share(caller.share) if caller is not None else None,
            "where": facts.where(caller),
            **(params or {}),
        },
        place=facts.where(caller),
        sure=Sure(count),
        saves=Saves(share=saved),
    )


def _caller(facts: Facts, theirs: Sequence[Detail]) -> Spot | None:
    """The user's function that called the most of it; not that which runs the whole training (`trainer.fit(...)`)."""
    spots = facts.spots(theirs)
    if not spots or spots[0].share < limit("most_share") or spots[0].samples < limit("min_samples"):
        return None
    line = (spots[0].frame.file, spots[0].frame.line)
    samples = facts.samples()
    below = sum(d.ns for d in samples if any((f.file, f.line) == line for f in facts.run.stack(d.stack)))
    return spots[0] if below < limit("held_share") * sum(d.ns for d in samples) else None


def _part_of_most(facts: Facts, theirs: Sequence[Detail]) -> tuple[str, float]:
    """The part of the step that most of it is in, which decides what to do, and that part's share."""
    ns: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for d in theirs:
        stack = facts.run.stack(d.stack)
        of_model = d.phase == "backward" or in_module(stack)
        part = "log" if framework.is_log_call(stack) else "model" if of_model else d.phase
        ns[part] += d.ns
        counts[part] += d.count
    most = max(ns, key=lambda part: ns[part])
    share = ns[most] / sum(ns.values())
    if counts[most] < limit("min_samples"):
        return "few_samples", 0.0
    if most in ("log", "optimizer"):
        return most, share
    caller = _caller(facts, theirs)
    if most != "model" and caller is not None:
        return "calls", caller.share
    return "networks" if "lightning" in facts.run.meta.get("framework", "") else "model", share


def _faster_optimizer(facts: Facts) -> Said:
    """An option of the loop's optimizer with which its step runs less Python."""
    found = [description for kind, description in facts.run.objects.values() if kind == "optimizer"]
    names = {str(description.get("class")) for description in found}
    if len(names) != 1 or not all(map(_is_torchs, found)):
        return Said("optimizer_unknown")
    (name,) = names
    if any(description.get("fused") is True for description in found):
        return Said("optimizer_as_it_is")
    if name in _FUSED_SINCE and (facts.run.feeds_device or facts.torch_version >= _FUSED_SINCE[name]):
        return Said("optimizer_fused", {"name": name})
    foreach = any(description.get("foreach") is True for description in found)
    return Said("optimizer_as_it_is") if foreach else Said("optimizer_foreach", {"name": name})


# -- the optimizer

_FUSED_SINCE: Final = {"Adam": (2, 4), "AdamW": (2, 4), "SGD": (2, 4), "Adagrad": (2, 5)}  # of torch, on the CPU
_FOREACH: Final = ("Adadelta", "Adamax", "NAdam", "RAdam", "RMSprop")  # not fused; faster on the CPU by foreach
_PLACE: Final = "torch.optim."


@dataclass(frozen=True, slots=True)
class _Optimizer:
    """One of torch's own, on the CPU, as it was at its first step."""

    name: str
    groups: int
    parameters: int
    elements: float  # of a parameter that is updated, in the mean; 0: not known
    plain: bool  # parameters that options of its step take
    momentum: bool
    foreach: bool
    fused: bool

    @property
    def one_by_one(self) -> bool:
        """A row of operations for each parameter; else for each group. On the CPU that is what it does by itself."""
        return not (self.foreach or self.fused)

    @property
    def many_groups(self) -> bool:
        """As with a group for each parameter or layer; two of each, for weight decay, are few."""
        return self.groups >= limit("optimizer_groups") and 4 * self.groups >= self.parameters

    @property
    def gains_by_foreach(self) -> bool:
        """With large tensors its temporary ones cost more than it saves."""
        small = 0 < self.elements <= limit("foreach_elements")
        return small and self.name in _FOREACH and self.one_by_one and self.plain and not self.many_groups

    def can_fuse(self, facts: Facts) -> bool:
        """Plain SGD adds one tensor to another, which takes less than to wake threads for it."""
        since = _FUSED_SINCE.get(self.name)
        adds_alone = self.name == "SGD" and not self.momentum and facts.torch_threads > 1
        known = since is not None and facts.torch_version >= since
        return known and not self.fused and self.plain and not adds_alone


@rule("TP311", "optimizer-step", Limits(limit("optimizer_share"), None), needs=("hook_optimizer",))
def optimizer_step(facts: Facts, limits: Limits) -> Outcome:
    """The optimizer's step on the CPU is many small operations, and could be few."""
    if facts.run.feeds_device:
        return None
    optimizer = _the_one(facts)
    if optimizer is None:
        return _by_hand(facts, limits)
    can_fuse = optimizer.can_fuse(facts)
    # Where each parameter has its own row anyhow, fewer groups alone save nothing.
    fewer_groups = optimizer.many_groups and (can_fuse or not optimizer.one_by_one)
    if not can_fuse and not fewer_groups and not optimizer.gains_by_foreach:
        return None
    claims = _work(facts, in_optimizer, unseen=True)
    severity = facts.grade(sum(claims.values()), limits)
    if severity is None:
        return None
    spots = facts.spots(facts.samples(phases=["optimizer"]), keep=in_optimizer)
    return Diagnosis(
        variant=_variant(can_fuse=can_fuse, fewer_groups=fewer_groups),
        severity=severity if fewer_groups else "info",
        claim=Claim(facts.main_cause(claims), claims),
        params={
            "name": optimizer.name,
            "one_by_one": optimizer.one_by_one,
            "parameters": Count(optimizer.parameters),
            "groups": Count(optimizer.groups),
            "kind": "fused=True" if optimizer.fused else "foreach=True" if optimizer.foreach else None,
        },
        place=facts.where(spots[0] if spots else None),
        saves=Saves(
            share=limit("optimizer_saves") if can_fuse or fewer_groups else limit("foreach_saves"),
            drop_in=not fewer_groups,
        ),
    )


def _variant(*, can_fuse: bool, fewer_groups: bool) -> str:
    if can_fuse:
        return "fused_and_fewer_groups" if fewer_groups else "fused"
    return "fewer_groups" if fewer_groups else "foreach"


def _by_hand(facts: Facts, limits: Limits) -> Outcome:
    """An info: an update that nobody else has written is needed."""
    if all(_is_torchs(description) for kind, description in facts.run.objects.values() if kind == "optimizer"):
        return None
    spots = facts.spots(facts.samples(phases=["optimizer"]), keep=in_own_optimizer)
    top = spots[0] if spots else None
    if top is None or top.samples < limit("min_samples"):
        return None
    claims = _work(facts, in_own_optimizer, unseen=False)
    if facts.grade(sum(claims.values()), limits) is None:
        return None
    return Diagnosis(
        variant="own_code",
        severity="info",
        claim=Claim(facts.main_cause(claims), claims),
        params={
            "place": facts.label(top),
        },
        place=facts.where(top),
        sure=Sure(sum(spot.samples for spot in spots)),
        saves=Saves(share=limit("optimizer_saves")),
    )


def _work(facts: Facts, is_own: Callable[[Sequence[FrameLike]], bool], *, unseen: bool) -> dict[Cell, int]:
    """Of the phase's exact time on the CPU what samples show in the optimizer itself: hooks of its step, and closures,
    are in that phase as well. Where nothing was sampled: all of it if `unseen`, else nothing."""
    claims: dict[Cell, int] = {}
    for state in ("python", "native"):
        samples = facts.samples(phases=["optimizer"], states=[state])
        own = sum(d.ns for d in samples if is_own(facts.run.stack(d.stack)))
        whole = sum(d.ns for d in samples if facts.run.stack(d.stack))
        exact = facts.matrix["optimizer", state]
        claims["optimizer", state] = exact * own // whole if whole else exact if unseen else 0
    return claims


def _the_one(facts: Facts) -> _Optimizer | None:
    """Several of one kind are as one; None of different kinds, of which the time is not known apart."""
    read = [_read(description) for kind, description in facts.run.objects.values() if kind == "optimizer"]
    known = [o for o in read if o is not None]
    if not known or len(known) < len(read) or len({(o.name, o.foreach, o.fused) for o in known}) > 1:
        return None
    return replace(
        known[0],
        groups=sum(o.groups for o in known),
        parameters=sum(o.parameters for o in known),
        elements=max(o.elements for o in known) if all(o.elements for o in known) else 0.0,
        plain=all(o.plain for o in known),
        momentum=all(o.momentum for o in known),
    )


def _is_torchs(description: Mapping[str, Any]) -> bool:
    return str(description.get("module", "")).startswith(_PLACE)


def _read(description: Mapping[str, Any]) -> _Optimizer | None:
    """None where it is not torch's own, not on the CPU, or not described so far, as by an older trainperf."""
    groups, parameters = description.get("groups"), description.get("parameters")
    if not _is_torchs(description) or description.get("device") != "cpu":
        return None
    if not isinstance(groups, int) or not isinstance(parameters, int):
        return None
    elements, updated = description.get("elements"), description.get("updated")
    return _Optimizer(
        name=str(description.get("class")),
        groups=groups,
        parameters=parameters,
        elements=elements / updated if isinstance(elements, int) and isinstance(updated, int) and updated else 0.0,
        plain=description.get("plain") is not False,
        momentum=description.get("momentum") is not False,
        foreach=description.get("foreach") is True,
        fused=description.get("fused") is True,
    )


# -- TP312: models that run outside of the training step: evaluation that no switch of mode shows, a second forward

_STATES: Final = ("native", "python")
_MOST_PLACES: Final = 8


@rule("TP312", "extra-forward", Limits(limit("validation_info_share"), None), needs=("stacks",))
def extra_forward(facts: Facts, limits: Limits) -> Outcome:
    """A model runs that no backward goes through, or hardly any: evaluation, rollouts, a frozen one."""
    mine = _extra_forwards(facts) if not facts.inference else None
    if mine is None or mine.samples < limit("min_samples"):
        return None
    # As a part of a loss it is needed (a teacher), and what is done now and then was asked for.
    severity = (facts.grade if mine.each_step else facts.grade_of_asked_work)(mine.ns, limits)
    if severity is None:
        return None
    top, cause = mine.spots[0], facts.main_cause(mine.claims)
    params: Params = {"each": Ns(mine.ns / facts.steps), "place": facts.label(top)}
    if mine.may_train:
        return Unsure("may_train", params, cause, mine.ns)
    variant = "hardly_trained" if mine.within_step else "outside"
    if mine.frozen:  # the model is trained, with these layers as they are: that was asked for
        variant, severity = "frozen_layers", "info"
    return Diagnosis(
        variant=variant,
        severity=severity,
        claim=Claim(cause, mine.claims),
        params={
            **params,
            "reason": mine.why,
            "spots": facts.rows(mine.spots, 3, limit("show_share")),
            "layers": Names(filter(None, mine.frozen)) or None,
        },
        place=facts.where(top),
        affected=mine.steps or None,
        sure=Sure(mine.samples, doubts=(Said("later_backward"),) if mine.each_step else ()),
        saves=Saves(share=1 - mine.needed_ns / mine.ns),
    )


@dataclass(frozen=True, slots=True)
class _ExtraForwards(Functions):
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

    @property
    def each_step(self) -> bool:
        """In addition to the training of each step."""
        return not self.within_step and not self.steps


def _extra_forwards(facts: Facts) -> _ExtraForwards | None:
    """The larger of what runs outside of every phase and what counts as forward. None where there are none, where
    layers were not seen to run in forward (it may begin elsewhere), and with a device, on which time of the host is not
    time of the model."""
    forwards = facts.samples(phases=["forward"], states=["native"])
    if facts.run.feeds_device or not any(facts.labelled(d).runs_layer for d in forwards):
        return None
    # Not told where PyTorch has more threads than CPUs: phases then wait for them, spinning, as long as chance has it.
    spins = facts.torch_threads > usable_cpus(facts.run) > 0
    of_few = None if spins else _of_few_steps(facts)
    candidates = (_outside(facts, forwards), None if spins else _untrained(facts), of_few)
    found = [f for f in candidates if f is not None]
    largest = max(found, key=lambda f: (not f.may_train, f.ns), default=None)
    # Which steps have it says more, and its time is exact.
    return of_few if of_few is not None and largest is not None and _is_same(of_few, largest) else largest


def _is_same(one: _ExtraForwards, other: _ExtraForwards) -> bool:
    """By place, and about as much."""
    at, there = ({frames.function_of(s.frame) for s in of.spots} for of in (one, other))
    return bool(at & there) and one.ns >= (1 - limit("same_time_share")) * other.ns


# -- outside of every phase


def _outside(facts: Facts, forwards: Sequence[Detail]) -> _ExtraForwards | None:
    """A forward that ends with a backward is `forward`, unless another batch is fetched between the two: the backward
    of such a one is as long as if it went through all."""
    seen = map(facts.labelled, facts.samples(phases=["other"]))
    callers = {_calling(label.stack) for label in seen if label.runs_layer} - {None}
    part = facts.part_of(_cells("other"), lambda d: _calling(facts.run.stack(d.stack)) in callers)
    if not part.claims:
        return None
    of_model = total(d for d in forwards if facts.labelled(d).in_module)
    forward_ns = facts.matrix["forward", "native"] * of_model // max(1, total(forwards))
    long_enough = facts.run.phase_ns("backward") >= forward_ns + part.ns
    gradients = {facts.once(ModuleCalls).has_gradient(facts.run.stack(d.stack)) for d in part.details} - {None}
    if long_enough and gradients == {True}:  # two models that are trained in turn, or a batch fetched between
        return None
    spots = facts.spots(part.details, seen_from=_calling_stack)
    return _ExtraForwards(spots, part.claims, long_enough and not gradients, Said("forward_outside"))


# -- in what counts as forward


def _untrained(facts: Facts) -> _ExtraForwards | None:
    """Whatever ends with a backward counts as forward; the lines whose layers run for much longer than all of backward
    takes have none, or for little of it: rollouts, a frozen teacher or backbone, evaluation without a loader. What the
    user's code does between the layers, or in hooks of theirs, has no backward in any model."""
    forward = _forward(facts)
    whole_ns, count = total(forward), sum(d.count for d in forward)
    ns, frozen = _of_lines(facts, forward)
    backward_ns = sum(facts.matrix[cell] for cell in _cells("backward"))

    def at_least(of_line: int) -> float:
        """Forward is exact, the line's share of it known by `count` samples: less their standard error."""
        share = min(max(of_line / max(1, whole_ns), 0.0), 1.0)  # in a damaged file it may be anything
        return whole_ns * (share - math.sqrt(share * (1 - share) / max(1, count)))

    long = {called for called, its in ns.items() if at_least(its) > limit("untrained_ratio") * backward_ns > 0}
    # The forward of what is trained is needed: it is spoken of where its layers are frozen, and nothing else is long.
    mine = {called for called in long if not called.is_trained} or {called for called in long if frozen[called]}
    part = facts.part_of(_cells("forward"), lambda d: _called(facts, facts.labelled(d)) in mine)
    if not part.claims:
        return None
    return _ExtraForwards(
        facts.spots(part.details, seen_from=_of_line),
        part.claims,
        may_train=False,
        why=Said("forward_untrained", {"times": Number(part.ns / backward_ns)}),
        # Backward goes through some of a line that is the only one: half of it is the least that a forward takes.
        needed_ns=0 if ns.keys() - mine else backward_ns // 2,
        frozen=tuple(dict.fromkeys(name for called in mine for name in frozen[called])),
    )


class _Called(NamedTuple):
    line: Line
    is_trained: bool  # it is known that a backward goes through


def _of_lines(facts: Facts, forward: Iterable[Detail]) -> tuple[Counter[_Called], dict[_Called, tuple[str, ...]]]:
    """Of each line that calls modules: its time in layers, and of those that are trained the frozen ones."""
    ns: Counter[_Called] = Counter()
    frozen: dict[_Called, tuple[str, ...]] = {}
    for d in forward:
        label = facts.labelled(d)
        if label.runs_layer and _calling_stack(label.stack) and (called := _called(facts, label)) is not None:
            ns[called] += d.ns
            frozen[called] = facts.once(ModuleCalls).frozen(label.stack) if called.is_trained else ()
    return ns, frozen


def _called(facts: Facts, label: Label) -> _Called | None:
    """Not for what shapes a batch: that is no model."""
    calls, line = facts.once(ModuleCalls), _line(label.stack)
    return _Called(line, calls.is_trained(label.stack)) if line and not calls.shapes_batch(label.stack) else None


# -- in few steps


def _of_few_steps(facts: Facts) -> _ExtraForwards | None:
    """Where few steps have a forward that is much longer than most steps', and no longer backward: evaluation without a
    loader, and with gradients. What is called there beside is what takes about so long in all."""
    steps, extra_ns = _longer_steps(facts)
    if not steps or 2 * steps >= facts.steps:
        return None
    details = _of_those(facts, extra_ns)
    if not details:
        return None
    whole = total(details)
    claims = {
        ("forward", state): min(
            extra_ns * total(d for d in details if d.state == state) // whole, facts.matrix["forward", state]
        )
        for state in _STATES
    }
    longer = Ns(sum(claims.values()) / steps)
    why = Said("forward_in_few", {"few": Count(steps), "longer": longer})
    return _ExtraForwards(facts.spots(details, seen_from=_of_line), claims, False, why, steps)


def _of_those(facts: Facts, extra_ns: int) -> list[Detail]:
    """The samples of what takes about so long in all. Most of it is in layers, and others are left for the backward to
    go through; of what is called in few steps a step has several samples."""
    layers_ns = total(d for d in _forward(facts) if facts.labelled(d).in_module)
    left_ns = layers_ns - limit("felt_share") * sum(facts.matrix[cell] for cell in _cells("backward"))
    fitting = [
        [d for place in some for d in place.details]
        for some in _as_long_as(extra_ns, facts)
        if sum(place.ns for place in some) / 2 <= sum(place.layers_ns for place in some) <= left_ns
    ]
    return max(fitting, key=lambda of: sum(d.count for d in of) / max(1, sum(d.steps for d in of)), default=[])


def _longer_steps(facts: Facts) -> tuple[int, int]:
    """How many have a much longer forward, and by how much together."""
    table = facts.run.steps
    forward, backward = (table.phases_ns[:, PHASES.index(phase)] / table.count for phase in ("forward", "backward"))
    more = forward - np.median(forward)
    few = (more > limit("longer_forward_ratio") * backward) & (table.backwards > 0) & (table.compile_ns == 0)
    few[:1] = False  # what is made at the first call
    return int(table.count[few].sum()), int((more * table.count)[few].sum())


@dataclass(eq=False, slots=True)
class _Place:
    """A function; of one that calls backward itself, a line."""

    ns: int = 0  # in forward
    layers_ns: int = 0  # in modules
    details: list[Detail] = field(default_factory=list)


def _as_long_as(ns: int, facts: Facts) -> list[tuple[_Place, ...]]:
    """The fewest places that take about so long together: each set that does, and none that has one of these in it."""
    places = sorted(_places(facts), key=lambda place: -place.ns)[:_MOST_PLACES]
    found: list[tuple[_Place, ...]] = []
    for n in range(1, len(places) + 1):
        for some in itertools.combinations(places, n):
            off = abs(sum(place.ns for place in some) - ns) / ns
            if off <= limit("same_time_share") and not any(set(fewer) <= set(some) for fewer in found):
                found.append(some)
    return found


def _places(facts: Facts) -> Iterable[_Place]:
    """Where the user's code calls modules in forward, or computes beside them."""
    trains = {facts.labelled(d).function for d in facts.samples(phases=["backward"])}
    places: dict[Line, _Place] = {}
    for d in _forward(facts):
        label = facts.labelled(d)
        if (line := _line(label.stack)) is not None:
            place = places.setdefault(line if line[0] in trains else (line[0], 0), _Place())
            place.ns += d.ns
            place.layers_ns += d.ns * label.in_module
            place.details.append(d)
    return places.values()


def _cells(phase: str) -> list[Cell]:
    return [(phase, state) for state in _STATES]


def _forward(facts: Facts) -> list[Detail]:
    """Samples of it on the CPU, weighed by its exact times."""
    cells = {cell: facts.matrix[cell] for cell in _cells("forward")}
    return weighed(facts.samples(phases=["forward"], states=_STATES), cells)


def _calling_stack(stack: Sequence[Frame]) -> Sequence[Frame]:
    """The stack of what called the outermost module; empty where none was called, or a metric, or by no function of the
    user's."""
    last = max((i for i, f in enumerate(stack) if frames.calls_module(f)), default=None)
    caller = stack[last + 1 :] if last is not None and not frames.of_metric(stack) else ()
    return caller if frames.is_the_loops(caller) else ()


def _of_line(stack: Sequence[Frame]) -> Sequence[Frame]:
    """The same, or the stack itself where no module was called."""
    return _calling_stack(stack) if frames.in_module(stack) or frames.user_frame(stack) is None else stack


def _calling(stack: Sequence[Frame]) -> Function | None:
    """The function of the user's that called the outermost module."""
    at = frames.user_frame(_calling_stack(stack))
    return frames.function_of(at) if at is not None else None


def _line(stack: Sequence[Frame]) -> Line | None:
    at = frames.user_frame(_of_line(stack))
    return (frames.function_of(at), at.line) if at is not None else None
