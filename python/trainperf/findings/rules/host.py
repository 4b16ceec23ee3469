"""TP309, TP311 and TP313: what the training thread runs on the CPU besides the program's own code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from trainperf.findings import debug_modes, loaders, log_calls
from trainperf.findings.frames import (
    FrameLike,
    in_module,
    in_optimizer,
    in_own_optimizer,
    in_profiler,
    is_framework,
    is_the_loops,
)
from trainperf.findings.model import (
    Claim,
    Diagnosis,
    Limits,
    Outcome,
    Params,
    Said,
    Saves,
    Severity,
    Sure,
    Unsure,
)
from trainperf.findings.rule import rule
from trainperf.findings.text import Count, Ns, Share
from trainperf.findings.thresholds import limit
from trainperf.findings.weights import NOTHING, Part

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts, Spot
    from trainperf.findings.model import Cell
    from trainperf.runfile import Detail, Frame


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
    profiling = _by_phase(cells, samples, profilers)
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
    told = set(calls.details) if (calls := log_calls.log_calls(facts)).severity is not None else set()

    def is_one(stack: Sequence[Frame]) -> bool:
        theirs = not is_the_loops(stack) and any(is_framework(f.file) for f in stack)
        return theirs and not debug_modes.in_anomaly(stack)  # TP313

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
            "each": Ns(sum(claims.values()) / facts.steps),
            "samples": Count(count),
            "place": facts.label(caller) if caller is not None else None,
            "place_and_caller": facts.label_with_caller(caller) if caller is not None else None,
            "place_share": Share(caller.share) if caller is not None else None,
            "where": facts.where(caller),
            "inference": facts.inference,
            **(params or {}),
        },
        place=facts.where(caller),
        who=(facts.step_thread_name,),
        sure=Sure(count),
        saves=Saves(share=saved),
    )


def _by_phase(cells: Mapping[Cell, int], samples: Sequence[Detail], some: Sequence[Detail]) -> dict[Cell, int]:
    """The exact time that some of the samples stand for, each in the cell of its phase."""
    claims: dict[Cell, int] = {}
    for cell, ns in cells.items():
        every = sum(d.ns for d in samples if d.phase == cell[0])
        mine = sum(d.ns for d in some if d.phase == cell[0])
        if mine:
            claims[cell] = ns * mine // every
    return claims


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
        part = "log" if log_calls.is_log_call(stack) else "model" if of_model else d.phase
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
    if name in _FUSED and (facts.run.feeds_device or facts.torch_version >= _FUSED_SINCE):
        return Said("optimizer_fused", {"name": name})
    foreach = any(description.get("foreach") is True for description in found)
    return Said("optimizer_as_it_is") if foreach else Said("optimizer_foreach", {"name": name})


# -- the optimizer

_FUSED: Final = ("Adam", "AdamW", "SGD")  # measured to be faster on the CPU
_FUSED_SINCE: Final = (2, 4)  # of torch, on the CPU
_PLACE: Final = "torch.optim."


@dataclass(frozen=True, slots=True)
class _Optimizer:
    """One of torch's own, on the CPU, as it was at its first step."""

    name: str
    groups: int
    parameters: int
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


@rule("TP311", "optimizer-step", Limits(limit("optimizer_share"), None), needs=("hook_optimizer",))
def optimizer_step(facts: Facts, limits: Limits) -> Outcome:
    """The optimizer's step on the CPU is many small operations, and could be few."""
    if facts.run.feeds_device:
        return None
    optimizer = _the_one(facts)
    if optimizer is None:
        return _by_hand(facts, limits)
    can_fuse = not optimizer.fused and optimizer.name in _FUSED and facts.torch_version >= _FUSED_SINCE
    # Where each parameter has its own row anyhow, fewer groups alone save nothing.
    fewer_groups = optimizer.many_groups and (can_fuse or not optimizer.one_by_one)
    if not can_fuse and not fewer_groups:
        return None
    claims = _work(facts, in_optimizer, unseen=True)
    severity = facts.grade(sum(claims.values()), limits)
    if severity is None:
        return None
    spots = facts.spots(facts.samples(phases=["optimizer"]), keep=in_optimizer)
    return Diagnosis(
        variant=("fused_and_fewer_groups" if fewer_groups else "fused") if can_fuse else "fewer_groups",
        severity=severity if fewer_groups else "info",
        claim=Claim(facts.main_cause(claims), claims),
        params={
            **facts.of_step(sum(claims.values())),
            "name": optimizer.name,
            "one_by_one": optimizer.one_by_one,
            "parameters": Count(optimizer.parameters),
            "groups": Count(optimizer.groups),
            "kind": "fused=True" if optimizer.fused else "foreach=True" if optimizer.foreach else None,
        },
        place=facts.where(spots[0] if spots else None),
        who=(facts.step_thread_name,),
        saves=Saves(share=limit("optimizer_saves"), drop_in=can_fuse and not fewer_groups),
    )


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
            **facts.of_step(sum(claims.values())),
            "thread_name": facts.step_thread_name,
            "place": facts.label(top),
        },
        place=facts.where(top),
        who=(facts.step_thread_name,),
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
    return replace(known[0], groups=sum(o.groups for o in known), parameters=sum(o.parameters for o in known))


def _is_torchs(description: Mapping[str, Any]) -> bool:
    return str(description.get("module", "")).startswith(_PLACE)


def _read(description: Mapping[str, Any]) -> _Optimizer | None:
    """None where it is not torch's own, not on the CPU, or not described so far, as by an older trainperf."""
    groups, parameters = description.get("groups"), description.get("parameters")
    if not _is_torchs(description) or description.get("device") != "cpu":
        return None
    if not isinstance(groups, int) or not isinstance(parameters, int):
        return None
    foreach, fused = description.get("foreach") is True, description.get("fused") is True
    return _Optimizer(str(description.get("class")), groups, parameters, foreach, fused)


# -- modes for debugging


@rule("TP313", "debug-mode", Limits(limit("warn_share"), limit("critical_share")))
def debug_mode(facts: Facts, limits: Limits) -> Outcome:
    """A mode for debugging was left on: autograd's anomaly detection, or a trace function of Python's."""
    found = [d for d in (_anomaly(facts, limits), _tracer(facts, limits)) if d is not None]
    if found:
        return max(found, key=lambda d: sum(d.claim.cells.values()))
    unpriced = (*_too_few_samples(facts), *_without_price(facts))
    return Unsure("modes_without_price", {"modes": unpriced}) if unpriced else None


def _anomaly(facts: Facts, limits: Limits) -> Diagnosis | None:
    cost = debug_modes.anomaly_cost(facts)
    severity = _priced(facts, cost, limits)
    if severity is None:
        return None
    lightning = "lightning" in facts.run.meta.get("framework", "")
    return Diagnosis(
        variant="anomaly_in_lightning" if lightning else "anomaly",
        severity=severity,
        claim=Claim(facts.main_cause(cost.claims), cost.claims),
        params={
            "each": Ns(cost.ns / facts.steps),
            "samples": Count(cost.samples),
            "percent": facts.run.anomaly_percent,
            "modes": tuple({"said": said} for said in _without_price(facts)),
        },
        who=(facts.step_thread_name,),
        sure=Sure(cost.samples),
        saves=Saves(more=True),
    )


def _tracer(facts: Facts, limits: Limits) -> Diagnosis | None:
    percent = facts.run.traced_percent
    if percent < 100 * limit("half_share") or facts.too_few:
        return None
    cost = debug_modes.tracer_cost(facts)
    severity = _priced(facts, cost, limits)
    python = facts.share(facts.cause_ns("python"))
    if severity is None:
        cost = NOTHING
    # A tracer slows all Python: where that is much of the step, the mode comes before what else is said of it.
    unpriced: Severity = "warning" if python >= limit("critical_share") else "info"
    name, how = facts.run.meta.get("tracer", "").rpartition(":")[2], _tracer_kind(facts)
    priced = bool(cost.claims)
    return Diagnosis(
        variant="tracer",
        severity=severity or unpriced,
        claim=Claim(facts.main_cause(cost.claims) if priced else "python", cost.claims),
        params={
            "how": how,
            "name": name,
            "named": bool(name),
            "percent": percent,
            "each": Ns(cost.ns / facts.steps) if priced else None,
            "samples": Count(cost.samples),
            "python": Share(python),
            "fix": Said(f"off_{how.partition('.')[2]}" if how in _TRACERS else "off_settrace"),
            "modes": tuple({"said": said} for said in _without_price(facts)),
        },
        who=(facts.step_thread_name,),
        sure=Sure(cost.samples if priced else None),
        saves=Saves(share=1.0 if priced else 0.0, more=True),
    )


_TRACERS: Final = ("sys.settrace", "sys.monitoring", "sys.setprofile")


def _tracer_kind(facts: Facts) -> str:
    return facts.run.meta.get("tracer_kind", "sys.settrace")


def _priced(facts: Facts, cost: Part, limits: Limits) -> Severity | None:
    return facts.grade(cost.ns, limits) if cost.samples >= limit("min_samples") else None


def _too_few_samples(facts: Facts) -> list[Said]:
    least = 100 * limit("warn_share")
    anomaly, traced = facts.run.anomaly_percent, facts.run.traced_percent
    return [
        *([Said("anomaly_was_on", {"percent": anomaly})] if anomaly >= least else []),
        *([Said("tracer_was_on", {"percent": traced, "how": _tracer_kind(facts)})] if traced >= least else []),
    ]


def _without_price(facts: Facts) -> list[Said]:
    """Modes that were on, and slow down the operations themselves: no sample tells by how much."""
    least = 100 * limit("warn_share")
    profiled, deterministic = facts.run.profiled_percent, facts.number("deterministic_percent")
    blocking = facts.run.feeds_device and facts.run.meta.get("launch_blocking") == "1"
    return [
        *([Said("profiler_was_on", {"percent": profiled})] if profiled >= least else []),
        *([Said("blocking_was_on")] if blocking else []),
        *([Said("deterministic_was_on", {"percent": f"{deterministic:.0f}"})] if deterministic >= least else []),
    ]
