"""How sure a diagnosis is, and why."""

from __future__ import annotations

from trainperf.findings.messages import TEXTS
from trainperf.findings.messages.catalogue import fill
from trainperf.findings.model import Confidence, Said, Sure
from trainperf.findings.text import Count
from trainperf.findings.thresholds import limit


def confidence(steps: int, sure: Sure) -> tuple[Confidence, str]:
    """And why it is no other."""
    if sure.level is not None:
        return sure.level, _reasons(sure.doubts)
    reasons: list[Said] = []
    level: Confidence = "high"
    if steps < limit("critical_min_steps"):
        level = "medium" if steps >= 5 else "low"
        reasons.append(Said("few_steps", {"steps": Count(steps)}))
    if sure.tier and sure.tier != "exact":
        level = "medium" if level == "high" else level
        reasons.append(Said("estimated", {"tier": sure.tier}))
    samples = sure.samples
    if samples == 0:  # no place is named that could be wrong
        level = "medium" if level == "high" else level
        reasons.append(Said("no_place"))
    elif samples is not None and samples < limit("good_samples"):
        few = samples < limit("min_samples")
        level = "low" if few else ("medium" if level == "high" else level)
        reasons.append(Said("few_samples", {"samples": Count(samples)}))
    if not reasons:
        reasons.append(Said("exact", {"steps": Count(steps), "samples": Count(samples) if samples else None}))
    if sure.doubts and level == "high":
        level = "medium"
    return level, _reasons((*reasons, *sure.doubts))


def _reasons(said: tuple[Said, ...]) -> str:
    return fill("{said}", {"said": said}, TEXTS)
