"""What the verdict says that it cannot explain: compute that no finding claims, and that is not known to be the
training's own; Python and native code that too few samples tell apart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainperf.findings.frames import is_framework, is_functional
from trainperf.findings.module_calls import ModuleCalls
from trainperf.findings.own_code import FORWARD, forward_beside_layers
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.model import Cell
    from trainperf.findings.stacks import Label


def unexplained_ns(facts: Facts) -> int:
    """Of what is computed between the phases: what the user's code asks for, that is no training, and that no finding
    claims. Not where another phase may have been missed."""
    between: Cell = ("other", "native")
    if facts.run.feeds_device or not facts.run.phase_ns("backward"):
        return 0
    samples = facts.samples(phases=["other"], states=["native"])
    mine = [d for d in samples if _is_asked(facts, facts.labelled(d))]
    if sum(d.count for d in mine) < limit("min_samples"):
        return 0
    asked = facts.matrix[between] * sum(d.ns for d in mine) // max(1, sum(d.ns for d in samples))
    return max(0, asked - (facts.matrix[between] - facts.ledger.left(between)))


def unexplained_forward_ns(facts: Facts) -> int:
    """Likewise of forward, where that is too long for a model, and a finding claims a part of it."""
    mine = forward_beside_layers(facts)
    claimed = facts.matrix[FORWARD] - facts.ledger.left(FORWARD)
    return max(0, mine.ns - claimed) if mine is not None else 0


def _is_asked(facts: Facts, label: Label) -> bool:
    """By the user's code: of a function, or a module without a gradient, and not of PyTorch's tools for training
    (clipping, optimizers). Models that may be trained are TP312's to speak of."""
    if not label.users or any(is_framework(f.file) and "/torch/" not in f.file for f in label.below):
        return False
    if label.in_module:
        return facts.once(ModuleCalls).has_gradient(label.stack) is False
    return all(map(is_functional, label.of_training))


_Z = 1.96  # 95 %


@dataclass(frozen=True, slots=True)
class Unsplit:
    """Two causes that too few samples tell apart."""

    causes: tuple[str, str]

    @property
    def name(self) -> str:
        """As long as a narrow terminal has room for."""
        return "+".join(self.causes)


def unsplit(facts: Facts) -> Unsplit | None:
    """None where enough samples tell, where that time is too small to matter, and of a trace, which is not sampled."""
    native = "launch" if facts.run.feeds_device else "compute"
    if facts.of_trace or facts.share(facts.cause_ns("python") + facts.cause_ns(native)) < limit("warn_share"):
        return None
    of_cause = {"python": 0, native: 0}
    for d in facts.samples(states=["python", "native"]):
        cause = facts.cause_of((d.phase, d.state))
        if cause in of_cause:
            of_cause[cause] += d.count
    samples = sum(of_cause.values())
    if _interval(of_cause["python"], samples) <= limit("split_width"):
        return None
    return Unsplit(("python", native))


def _interval(some: int, samples: int) -> float:
    """How wide Wilson's 95 % interval of a share is: 0 .. 1."""
    if not samples:
        return 1.0
    p, z2 = some / samples, _Z * _Z
    return 2 * _Z * math.sqrt(p * (1 - p) / samples + z2 / (4 * samples**2)) / (1 + z2 / samples)
