"""TP302 and TP310: the loop's own code, beside the training itself, takes much of the step: Python, and native code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from trainperf.findings import own_code, places
from trainperf.findings.frames import function_of, in_step_hook, label
from trainperf.findings.framework import trainer
from trainperf.findings.model import (
    ALL,
    Affected,
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
from trainperf.findings.module_calls import batch_work
from trainperf.findings.own_code import saves
from trainperf.findings.rule import WARNS, rule
from trainperf.findings.text import Count, Ns, Number, Share
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.frames import FrameLike
    from trainperf.findings.own_code import OwnCode
    from trainperf.runfile import Detail

_TOGETHER: Final = Limits(limit("several_functions_share"), limit("critical_share"))
# Where the code runs says where else it could: what is a part of each step can be in no other process.
_PARTS: Final = frozenset({"optimizer", "backward", "hook", "model"})
# Lightning's hooks that are given a batch, and return it.
_OF_A_BATCH: Final = frozenset({"on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer"})
_DOUBTED: Final = frozenset({"files", "hooks", "backward_hooks", "step_hooks"})


@dataclass(frozen=True, slots=True)
class _Told:
    """What it is told as."""

    variant: str
    params: Params = field(default_factory=dict)
    doubt: Said | None = None
    saves: Saves = ALL


# -- Python


@rule("TP302", "host-python", Limits(limit("one_function_share"), limit("critical_share")), needs=("gil_holds",))
def host_python(facts: Facts, limits: Limits) -> Outcome:
    """The loop's own Python, on the CPU with the GIL."""
    by_function = own_code.own_code(facts, "python")
    severity = facts.grade(by_function.ns, limits)
    if severity is None:
        return _python_unsure(facts, by_function, limits)
    if _is_notable(facts, by_function):
        return _python(facts, severity, by_function, {})
    mine = own_code.with_what_they_call(facts, by_function)
    if _is_notable(facts, mine):
        return _python(
            facts, severity, mine, {"called": True, "functions": facts.rows(by_function.spots, 3, limit("show_share"))}
        )
    return _together(facts) or _python_unsure(facts, by_function, limits)


def _is_notable(facts: Facts, mine: OwnCode) -> bool:
    """The costliest of them, and seen often enough to be named."""
    if not mine.spots or mine.spots[0].samples < limit("min_samples"):
        return False
    return facts.loop_share(int(mine.ns * mine.spots[0].share)) >= limit("one_function_share")


def _python(facts: Facts, severity: Severity, mine: OwnCode, how: Params) -> Diagnosis:
    top = mine.spots[0]
    affected = facts.affected_by_part(mine.ns, cause=facts.main_cause(mine.claims))
    told = _python_told_as(facts, mine, affected)
    untold, moving = own_code.untold_of_line(facts, mine, top), mine.share(phase="transfer")
    return _diagnosis(
        facts,
        severity,
        mine,
        affected,
        _Told(
            told.variant,
            {
                **_of_python(facts, mine),
                **how,
                "line": label(top.frame, facts.base),
                "at": facts.where(top),
                "untold": Ns(untold / facts.steps) if facts.share(untold) >= limit("warn_share") else None,
                "moving": Share(moving) if moving else None,
                "backward": Ns(facts.run.phase_ns("backward") / facts.steps),
                **told.params,
            },
            told.doubt,
            Saves(share=facts.saved_share(mine.spots), more=told.variant == "loss_in_pieces"),
        ),
    )


def _python_told_as(facts: Facts, mine: OwnCode, affected: Affected) -> _Told:
    top, rare = mine.spots[0], affected.steps < facts.steps
    seen = own_code.of_function(facts, mine, top)
    frees = own_code.may_free_a_batch(facts, top, seen)
    early, elsewhere = _elsewhere(facts, seen, affected)
    if not rare and _works_on_a_batch(top.frames):
        early, elsewhere = False, "of_batch"
    when: Params = {"rare": rare, "early": early and not frees}
    if asked := own_code.asks_for(facts, seen):
        return _Told(asked, when)
    if places.rewrites(facts, top):
        return _Told("rewrites", when)
    fix = places.fused(facts, top)
    if fix is None and top.leaf == "copy.deepcopy":
        fix = Said("fewer_copies")
    if fix is None and (part := own_code.part_of_step(facts, seen)) in _PARTS:
        fix = Said(f"in_{part}")
    if frees:
        return _Told("frees", {**when, "fix": fix or Said("if_it_frees")}, Said("doubt_frees", {"gil": facts.has_gil}))
    if fix is None and elsewhere == "after_the_model" and not rare and _makes_backward_long(facts, mine):
        return _Told("loss_in_pieces", when)
    words: Params = {
        "loss": own_code.computes_loss(facts, mine, top),
        "batch": _batch(facts),
        "weights": elsewhere == "anywhere" and own_code.works_on_weights(facts, seen),
        "converts": places.converts_items(facts, top),
    }
    return _Told("runs", {**when, "fix": fix or Said(elsewhere, words)})


def _together(facts: Facts) -> Diagnosis | None:
    """Of functions that the loop calls, none of them notable: what holds of each, and no more."""
    mine = own_code.called_together(facts)
    severity = facts.grade(mine.ns, _TOGETHER)
    # Each is small: where one seems to be large, too little was seen of it.
    if severity is None or mine.samples < 2 * limit("min_samples"):
        return None
    if facts.loop_share(int(mine.ns * mine.spots[0].share)) >= limit("one_function_share"):
        return None
    affected = facts.affected_by_part(mine.ns, cause=facts.main_cause(mine.claims))
    early, elsewhere = _elsewhere(facts, mine.details, affected)
    loss = elsewhere == "after_the_model" and any(own_code.computes_loss(facts, mine, spot) for spot in mine.spots)
    params = {
        **_of_python(facts, mine),
        "functions": Count(len(mine.spots)),
        "early": early,
        "fix": Said(elsewhere, {"loss": loss, "batch": _batch(facts)}),
        "second": facts.label(mine.spots[1]),
        "second_share": Share(mine.spots[1].share),
    }
    return _diagnosis(facts, severity, mine, affected, _Told("together", params))


def _of_python(facts: Facts, mine: OwnCode) -> Params:
    """What else is known of it, where that is notable."""
    native, unread = mine.share(mechanism="native"), own_code.unread_share(facts, mine.claims)
    known = native >= limit("warn_share")
    return {
        "gil": facts.has_gil,
        "holds": facts.has_gil and not known,
        "native": Share(native) if known else None,
        "unread": Share(unread) if unread >= limit("warn_share") else None,
        "spots": facts.rows(mine.spots, 3, limit("show_share"), with_caller=True),
    }


def _elsewhere(facts: Facts, details: Sequence[Detail], affected: Affected) -> tuple[bool, str]:
    """Whether it runs before the model is called, and where else it could run."""
    around = own_code.around_the_model(facts, details)
    before = around.before >= limit("held_share")
    if affected.rare(facts.steps):
        return before, "now_and_then"
    if facts.inference:
        return False, "of_batch" if before else "of_results"
    if around.after + around.updated >= limit("held_share"):
        return False, "after_the_model"
    return before, "before_the_model" if before else "anywhere"


def _makes_backward_long(facts: Facts, mine: OwnCode) -> bool:
    """Most of forward is this, and backward computes longer than it would for what else is in forward, and than
    this."""
    if facts.run.feeds_device:
        return False  # whose backward takes its time elsewhere
    forward, in_forward = facts.run.phase_ns("forward"), int(mine.ns * mine.share(phase="forward"))
    backward = sum(facts.matrix["backward", mechanism] for mechanism in ("python", "native"))
    long = backward >= max(in_forward, limit("backward_ratio") * (forward - in_forward))
    return long and in_forward >= limit("half_share") * forward


def _python_unsure(facts: Facts, mine: OwnCode, limits: Limits) -> Unsure | None:
    """Where there is much Python, and it cannot be told whose."""
    cells = own_code.python_cells(facts)
    ns = sum(cells.values())
    if facts.grade(ns, limits) is None:
        return None
    count = sum(d.count for d in facts.samples(phases={p for p, _ in cells}, states=["python"]))
    if count < limit("min_samples"):
        return Unsure("python_unseen", {"samples": Count(count)}, "python", ns)
    if few := own_code.too_few_samples(facts, mine, limits):
        return Unsure("python_of_few", few, "python", ns)
    if facts.grade(mine.ns, limits) is None or mine.samples >= limit("good_samples"):
        return None
    unread = own_code.unread_share(facts, mine.claims)
    params: Params = {"samples": Count(mine.samples), "functions": Count(len(mine.spots)), "unread": Share(unread)}
    return Unsure("python_unread" if unread >= limit("warn_share") else "python_in_few", params, "python", ns)


# -- native code


@rule("TP310", "host-compute", WARNS, needs=("gil_holds", "stacks"))
def host_compute(facts: Facts, limits: Limits) -> Outcome:
    """Native code of the loop's own, beside the training itself."""
    mine = own_code.own_code(facts, "native")
    severity = facts.grade(mine.ns, limits)
    if severity is None or not _is_seen(mine):
        found = [f for f in (_beside_the_model(facts, limits), *_in_the_model(facts, limits)) if f is not None]
        most = max(found, key=lambda f: sum(f.claim.cells.values()), default=None)
        return most or _native_unsure(facts, mine, limits)
    # Without torch's optimizers, the loop's own update of the weights is here as well.
    if not facts.run.phase_ns("optimizer") and not facts.inference:
        severity = "info"
    return _native(facts, severity, mine, _native_told_as(facts, mine, _affected(facts, mine)))


def _is_seen(mine: OwnCode) -> bool:
    return bool(mine.spots) and mine.spots[0].samples >= limit("min_samples")


def _beside_the_model(facts: Facts, limits: Limits) -> Diagnosis | None:
    """An info, as a loss is computed there and is needed, unless backward is too long for a model and its loss."""
    mine = own_code.beside_the_model(facts)
    severity = facts.grade(int(mine.ns * mine.spots[0].share), limits) if _is_seen(mine) else None
    if severity is None:
        return None
    if call := own_code.file_call(facts, mine):
        return _native(facts, severity, mine, _files(call))
    forward, backward = facts.run.phase_ns("forward"), facts.run.phase_ns("backward")
    if backward >= limit("backward_ratio") * forward > 0 and mine.ns >= limit("half_share") * forward:
        return _native(facts, severity, mine, _Told("loss_in_pieces", {"ratio": Number(backward / forward)}))
    return _native(facts, "info", mine, _Told("without_training" if facts.inference else "may_be_a_loss"))


def _in_the_model(facts: Facts, limits: Limits) -> Iterator[Diagnosis]:
    """Infos: a part of the model may need it."""
    for variant, mine in (
        ("in_the_model", own_code.arrays_in_model(facts)),
        ("own_operation", own_code.own_operations(facts)),
    ):
        if _is_seen(mine) and facts.grade(mine.ns, limits) is not None:
            yield _native(facts, "info", mine, _Told(variant))


def _native(facts: Facts, severity: Severity, mine: OwnCode, told: _Told) -> Diagnosis:
    top, python = mine.spots[0], mine.share(mechanism="python")
    if places.rewrites(facts, top):
        told = _Told("rewrites")
    fused = places.fused(facts, top)
    params = {
        "spots": facts.rows(mine.spots, 3, limit("show_share")),
        "python": Share(python) if python >= limit("warn_share") else None,
        "fused": fused,
        **told.params,
    }
    saved = Saves(
        share=facts.saved_share(mine.spots),
        more=told.variant == "loss_in_pieces",
        finds_out=told.variant in ("may_be_a_loss", "without_training", "own_operation") and fused is None,
    )
    return _diagnosis(facts, severity, mine, _affected(facts, mine), _Told(told.variant, params, told.doubt, saved))


def _native_told_as(facts: Facts, mine: OwnCode, affected: Affected) -> _Told:
    top = mine.spots[0]
    if saves(top.frames):
        return _Told("saves_log" if places.is_of_log(top.frame) else "saves")
    seen = own_code.of_function(facts, mine, top)
    if (asked := own_code.asks_for(facts, seen)) in ("metrics", "average"):
        return _Told(asked)
    if call := own_code.file_call(facts, mine):
        return _files(call)
    if hooks := _hooks(facts, mine):
        return _Told(hooks, doubt=Said(f"doubt_{hooks}"))
    if mine.share(phase="optimizer") > limit("most_share"):
        return _Told("lightnings_closure" if trainer(facts) else "closure")
    if mine.share(phase="forward") > limit("most_share") or _works_on_a_batch(top.frames):
        doubt = Said("doubt_tensors") if own_code.may_be_of_tensors(facts, seen) else None
        return _by_the_model(facts, mine, doubt)
    if affected.rare(facts.steps):
        return _Told("rarely")
    weights = own_code.works_on_weights(facts, seen) and places.fused(facts, top) is None
    return _Told("between_phases", {"weights": weights})


def _files(call: str) -> _Told:
    return _Told("files", {"call": call}, Said("doubt_files"))


def _hooks(facts: Facts, mine: OwnCode) -> str:
    """The variant; "" where most of it is in no hooks."""
    if own_code.share_in_hooks(facts, mine) > limit("most_share"):
        return "hooks"
    if mine.share(phase="backward") > limit("most_share"):
        return "backward_hooks"
    in_step = mine.share(phase="optimizer") > limit("most_share") and in_step_hook(mine.spots[0].frames)
    return "step_hooks" if in_step else ""


def _works_on_a_batch(stack: Sequence[FrameLike]) -> bool:
    return any(function_of(frame)[1].rpartition(".")[2] in _OF_A_BATCH for frame in stack)


def _by_the_model(facts: Facts, mine: OwnCode, doubt: Said | None) -> _Told:
    """By when most of it was, among the model's calls and the update."""
    at = own_code.around_the_model(facts, [d for d in mine.details if d.phase == "forward"])
    mostly, after = limit("held_share"), at.after + at.updated
    if at.after >= mostly:
        variant = "after_the_model"
    elif after >= mostly:
        variant = "after_the_call"
    elif at.between > limit("most_share"):
        variant = "between_calls"
    else:
        variant = "before_the_model" if min(at.before, after) <= 1 - mostly else "around_the_model"
    return _Told(variant, {"after": Share(after), "batch": _batch(facts)}, doubt)


def _batch(facts: Facts) -> Said:
    """How else to make a batch: by workers, unless the run has no DataLoader."""
    loaders = facts.run.loaders.values()
    seen = not facts.of_trace and "hook_dataloader" not in facts.run.tiers
    none = seen and not any(v.description.get("is_dataloader", True) for v in loaders)
    return Said("by_indexing" if none else "in_workers")


def _affected(facts: Facts, mine: OwnCode) -> Affected:
    """The few steps that the samples or, between the phases, the exact times say that it is in; or all. Others may be
    long between the phases for a wait, or compute longer within one: its own do both."""
    seen = mine.affected(facts.steps)
    if seen.steps < facts.steps or mine.share(phase="other") < limit("held_share"):
        return seen
    few = facts.affected_by_part(mine.ns, phase="other")
    computing = facts.affected_by_part(mine.ns, cause=facts.main_cause(mine.claims))
    return few if computing.steps <= 2 * few.steps and computing.steps < facts.steps else seen


def _native_unsure(facts: Facts, mine: OwnCode, limits: Limits) -> Unsure | None:
    """Where much native code runs beside the model, and it cannot be told whose."""
    outside = facts.matrix["other", "native"]
    if facts.grade(outside, limits) is not None:
        if facts.run.feeds_device and facts.gpu is None:
            return Unsure("native_may_wait")
        count = sum(
            d.count for d in facts.samples(phases={p for p, _ in own_code.native_cells(facts)}, states=["native"])
        )
        if count < limit("min_samples"):
            return Unsure("native_unseen", {"samples": Count(count)}, "compute", outside)
    if few := own_code.too_few_samples(facts, mine, limits):
        return Unsure("native_of_few", few, "compute", mine.ns)
    return _model_or_batch(facts, limits)


def _model_or_batch(facts: Facts, limits: Limits) -> Unsure | None:
    """What may be the model, or work on its batch."""
    mine = own_code.forward_beside_layers(facts)
    if mine is not None and _is_seen(mine) and facts.grade(mine.ns, limits) is not None:
        top = mine.spots[0]
        params: Params = {
            "layers": facts.once(own_code.runs_layers),
            "place": facts.label(top),
            "share": Share(top.share),
            "ratio": Number(facts.run.phase_ns("forward") / facts.run.phase_ns("backward")),
        }
        return Unsure("model_or_batch", params, "compute", mine.ns)
    unsure_ns = facts.once(batch_work).unsure_ns
    if facts.grade(unsure_ns, limits) is None:
        return None
    return Unsure("functions_before_layers", cause="compute", ns=unsure_ns)


# -- both


def _diagnosis(facts: Facts, severity: Severity, mine: OwnCode, affected: Affected, told: _Told) -> Diagnosis:
    top, second = mine.spots[0], facts.second(mine.spots)
    return Diagnosis(
        variant=told.variant,
        severity=severity,
        claim=Claim(facts.main_cause(mine.claims), mine.claims),
        params={
            "place": facts.label(top, with_caller=True),
            "first": facts.label(top),
            "first_share": Share(top.share),
            "second": facts.label(second),
            "second_share": Share(second.share) if second is not None else None,
            **told.params,
        },
        place=facts.where(top),
        affected=affected,
        sure=Sure(samples=mine.samples, doubts=(told.doubt,) if told.doubt is not None else ()),
        saves=told.saves,
    )
