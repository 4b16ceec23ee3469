"""Puts what rules diagnose into the words of messages/."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from trainperf.findings.messages import MESSAGES, TEXTS, UNSURE
from trainperf.findings.messages.catalogue import Doubt, fill, lines
from trainperf.findings.messages.general import TERMS
from trainperf.findings.model import Abstained, Confidence, Diagnosis, Finding, Params, Said, Sure, Unsure, role_of
from trainperf.findings.text import Count
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.rule import Rule


def finding(facts: Facts, rule: Rule, d: Diagnosis) -> Finding:
    message = MESSAGES[rule.id][d.variant]
    params = {**terms(facts), **d.params}

    def words(template: str, more: Params | None = None) -> str:
        return fill(template, {**params, **(more or {})}, TEXTS)

    found = facts.finding(
        (rule.id, d.slug or rule.slug),
        severity=d.severity,
        cause=d.claim.cause,
        claims=dict(d.claim.cells),
        idle=d.claim.idle,
        exposed_ns=d.claim.exposed_ns,
        by_device=d.claim.by_device,
        title=words(message.title),
        evidence=lines(message.evidence, params, TEXTS),
        confidence=confidence(facts.steps, d.sure),
        affected=d.affected,
        who=tuple(w if isinstance(w, str) else words(TEXTS[w.key], w.params) for w in d.who),
        where=d.place,
        why=words(message.why),
        fix=words(message.fix),
        fix_share=d.saves.share,
        saves_more=d.saves.more,
        finds_out=d.saves.finds_out,
        will_not_help=words(message.will_not_help),
        by_others=d.by_others,
    )
    return dataclasses.replace(
        found,
        variant=d.variant,
        role=d.role or role_of(rule),
        params=d.params,
        brief=words(message.brief),
        slow_part=d.slow_part,
        tells_idle=d.tells_idle,
    )


def abstained(facts: Facts, rule: Rule, unsure: Unsure) -> Abstained:
    told = UNSURE[unsure.variant]
    params = {**terms(facts), **unsure.params}
    if isinstance(told, str):
        told = Doubt(why=told, whose="")
    why, whose, unknown = (fill(text, params, TEXTS) for text in (told.why, told.whose, told.unknown))
    return Abstained(rule.id, rule.slug, why, whose, unsure.cause, unsure.ns, unknown, unsure.variant, unsure.params)


def text(facts: Facts, said: Said) -> str:
    return fill(TEXTS[said.key], {**terms(facts), **said.params}, TEXTS)


def terms(facts: Facts) -> Params:
    words = {name: of[facts.inference] for name, of in TERMS.items()}
    return {**words, "gpu": facts.gpu.name if facts.gpu is not None else None}


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
