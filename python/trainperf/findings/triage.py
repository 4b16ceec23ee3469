"""The class of the task (a small or a large model, simple or complex data), and which part of a step sets its pace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from trainperf.findings import cpus, own_code
from trainperf.findings.messages import TEXTS, words
from trainperf.findings.model import Params, Said
from trainperf.findings.text import Names, Share
from trainperf.findings.thresholds import limit
from trainperf.findings.verdict import Unsplit, unsplit
from trainperf.runfile.schema import CAUSES

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts

_GPU = "gpu"  # among the parts of a step: the device's work
_TRAINING = ("forward", "backward", "optimizer")


@dataclass(frozen=True, slots=True)
class Triage:
    """What was measured of a run says of its kind."""

    text: str
    model: Literal["small", "large"] | None  # None: too few samples
    data: Literal["simple", "complex"] | None  # None: the loop fetches nothing that is seen
    pace: str  # the part that takes half of the time or more: a cause, or "gpu"; "": none does
    parts: tuple[tuple[str, float], ...]  # with their shares, the largest first; of a device's time where one was seen


def triage(facts: Facts) -> Triage | None:
    """None: too little was measured to say so much."""
    if not facts.wall_ns or facts.too_few or facts.gpu_unseen:
        return None
    both = unsplit(facts) if facts.gpu is None else None
    parts = _parts(facts, both)
    if dict(parts)["unknown"] >= limit("unknown_share"):
        return None
    (first, most), (second, next_most) = parts[:2]
    paced = most >= limit("half_share")
    shares: Params = {"share": Share(most), "second_share": Share(next_most)}
    named: Params = {"part": _named(first), "second": _named(second) if next_most >= limit("show_share") else None}
    model, data = _model(facts, both), _data(facts)
    kinds = [f"{model} model" if model else "", f"{data} data" if data else ""]
    pace = Said("paced" if paced else "unpaced", {**shares, **named})
    text = words(facts, "[[{kinds:,}: ]]{pace}", {"kinds": Names(filter(None, kinds)) or None, "pace": pace})
    return Triage(text, model, data, first if paced else "", parts)


def _parts(facts: Facts, both: Unsplit | None) -> tuple[tuple[str, float], ...]:
    """What the step is made of: with a device its work, and what it idles for."""
    gpu = facts.gpu
    of = {cause: facts.cause_ns(cause) for cause in CAUSES} if gpu is None else {_GPU: gpu.busy_ns, **gpu.idle_causes}
    if both is not None:
        of[both.name] = sum(of.pop(cause) for cause in both.causes)
    whole = sum(of.values())
    return tuple(sorted(((part, ns / whole) for part, ns in of.items()), key=lambda part: -part[1]))


def _named(part: str) -> Said | str:
    return Said(f"part_{part}") if f"part_{part}" in TEXTS else part


def _model(facts: Facts, both: Unsplit | None) -> Literal["small", "large"] | None:
    """Large: what it computes takes longer than to fetch its batch, and than to issue its operations."""
    if facts.gpu is None:
        others = own_code.own_code(facts, "native").ns  # what the user's functions compute outside of the model
        most = facts.cause_ns("compute") + (facts.cause_ns("python") if both is not None else 0) - others
        if most < max(limit("small_model_ms") * 1e6 * facts.steps, _waits_for_data(facts)):
            return "small"
        if both is not None:
            return None
        computes, waits = most, _waits_for_data(facts)
    else:
        computes, waits = facts.gpu.busy_ns, facts.gpu.idle_causes["data_wait"]
    issues = ("python", "launch")
    issuing = sum(ns for cell, ns in facts.matrix.items() if cell[0] in _TRAINING and facts.cause_of(cell) in issues)
    return "large" if computes >= max(issuing, waits) else "small"


def _data(facts: Facts) -> Literal["simple", "complex"] | None:
    """Complex: the loop waits for it, or would if its workers did not make it meanwhile."""
    if not facts.run.phase_ns("fetch"):
        return None
    used = cpus.cpu_use(facts.run)
    made = used is not None and used.workers >= limit("complex_data_cpus")
    return "complex" if made or facts.loop_share(_waits_for_data(facts)) >= limit("warn_share") else "simple"


def _waits_for_data(facts: Facts) -> int:
    """Where loaders were seen, for as many batches as the usual step takes, and not for their start."""
    waits = facts.cause_ns("data_wait")
    fetches = [loader.fetches for loader in facts.run.loaders.values()]
    count, table = sum(f.count for f in fetches), facts.run.steps
    if not count:
        return waits
    usual = float(np.median(np.repeat(table.fetches / table.count, table.count)))
    return min(waits, round(sum(f.wall_ns for f in fetches) / count * usual * facts.steps))
