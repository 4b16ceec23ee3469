"""Compute that no finding claims, and that is not known to be the training's own: the verdict says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainperf.findings.frames import below_users, in_module, is_framework, is_functional, is_trainings_own, user_frame
from trainperf.findings.own_code import FORWARD, forward_beside_layers
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.model import Cell
    from trainperf.runfile import Frame


def unexplained_ns(facts: Facts) -> int:
    """Of what is computed between the phases: what the user's code asks for, that is no training, and that no finding
    claims. Not where another phase may have been missed."""
    between: Cell = ("other", "native")
    if facts.run.feeds_device or not facts.run.phase_ns("backward"):
        return 0
    samples = facts.samples(phases=["other"], states=["native"])
    mine = [d for d in samples if _is_asked(facts, facts.run.stack(d.stack))]
    if sum(d.count for d in mine) < limit("min_samples"):
        return 0
    asked = facts.matrix[between] * sum(d.ns for d in mine) // max(1, sum(d.ns for d in samples))
    return max(0, asked - (facts.matrix[between] - facts.ledger.left(between)))


def unexplained_forward_ns(facts: Facts) -> int:
    """Likewise of forward, where that is too long for a model, and a finding claims a part of it."""
    mine = forward_beside_layers(facts)
    claimed = facts.matrix[FORWARD] - facts.ledger.left(FORWARD)
    return max(0, mine.ns - claimed) if mine is not None else 0


def _is_asked(facts: Facts, stack: Sequence[Frame]) -> bool:
    """By the user's code: of a function, or a module without a gradient, and not of PyTorch's tools for training
    (clipping, optimizers). Models that may be trained are TP312's to speak of."""
    inner = below_users(stack)
    if user_frame(stack) is None or any(is_framework(f.file) and "/torch/" not in f.file for f in inner):
        return False
    if in_module(stack):
        return facts.module_calls.has_gradient(stack) is False
    return not any(is_trainings_own(f) and not is_functional(f) for f in inner)
