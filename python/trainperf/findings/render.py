"""Puts what rules diagnose into the words of messages/, and says how sure it is, and why."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from trainperf.findings import framework, loaders
from trainperf.findings.messages import MESSAGES, TEXTS, UNSURE, terms, words
from trainperf.findings.model import Abstained, Affected, Confidence, Diagnosis, Finding, Params, Said, Sure, Unsure
from trainperf.findings.text import Count, Doubt, Ns, lines
from trainperf.findings.thresholds import limit
from trainperf.runfile.schema import MACHINE

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.rule import Rule


def finding(facts: Facts, rule: Rule, d: Diagnosis) -> Finding:
    message = MESSAGES[rule.id][d.variant]
    claim, by_cause = d.claim, facts.by_cause(d.claim.cells)
    claimed = sum(by_cause.values())
    cost = claimed if claim.idle is None else sum(claim.idle.values()) + claim.exposed_ns
    graded = facts.grade(cost, rule.limits, machine=claim.cause in MACHINE) or "info"
    affected = d.affected if isinstance(d.affected, Affected) else Affected(d.affected or facts.steps, 1.0)
    if 2 * affected.steps >= facts.steps:
        affected = Affected(facts.steps, 1.0)
    sure, why_sure = _confidence(facts, d.sure)
    params = {**_given(facts, d, cost, affected), **d.params}
    named = (facts.step_thread_name,) if d.who is None else d.who
    who = (w if isinstance(w, str) else words(facts, TEXTS[w.key], {**params, **w.params}) for w in named)
    return _adapted(
        facts,
        Finding(
            id=rule.id,
            slug=d.slug or rule.slug,
            variant=d.variant,
            role=d.role or rule.role,
            params=params,
            severity=d.severity or graded,
            cause=claim.cause,
            title=words(facts, message.title, params),
            brief=words(facts, message.brief, params),
            cost_ns=cost,
            share=facts.share(cost),
            cost_ms_per_step=facts.ms_per_step(cost),
            steps=facts.steps,
            steps_affected=affected.steps,
            affected_share=affected.share,
            confidence=sure,
            confidence_why=why_sure,
            evidence=tuple(filter(None, lines(message.evidence, {**terms(facts), **params}, TEXTS))),
            who=tuple(dict.fromkeys(filter(None, who))),
            where=d.place,
            why=words(facts, message.why, params),
            fix=words(facts, message.fix, params),
            will_not_help=words(facts, message.will_not_help, params),
            docs=f"docs/findings/{rule.id}.md",
            claims=dict(claim.cells),
            also_causes=tuple(
                c for c, ns in by_cause.items() if c != claim.cause and ns >= limit("warn_share") * claimed
            ),
            idle_claims=claim.idle,
            exposed_ns=claim.exposed_ns,
            by_device=claim.by_device,
            of_functions=claim.of_functions,
            by_others=d.by_others,
            fix_share=d.saves.share,
            saves_more=d.saves.more,
            saves_about=d.saves.about,
            finds_out=d.saves.finds_out,
            drop_in=d.saves.drop_in,
            slow_part=d.slow_part,
            tells_idle=d.tells_idle,
        ),
    )


def _given(facts: Facts, d: Diagnosis, cost: int, affected: Affected) -> Params:
    """What the rule need not hand over: its cost by step, over all of them and in the few that have it, and how many
    samples tell."""
    few = affected.steps < facts.steps
    return {
        "each": Ns(cost / facts.steps) if cost else None,
        "few": Count(affected.steps) if few else None,
        "few_each": Ns(cost * affected.share / max(1, affected.steps)) if few else None,
        "samples": Count(d.sure.samples) if d.sure.samples is not None else None,
    }


def _adapted(facts: Facts, finding: Finding) -> Finding:
    """Its fix in the terms of who makes the loader that it is about: a hook, a trainer's method, or its options."""
    waits, meta = finding.cause == "data_wait", facts.run.meta
    hook = facts.once(framework.fetching_hook) if waits else ""
    if hook:
        who = tuple(dict.fromkeys((*finding.who, hook)))
        why = f"{finding.why}, called by {hook}" if finding.why else ""
        return dataclasses.replace(finding, who=who, why=why, fix=loaders.read_by(finding.fix, hook))
    own = framework.own_loader(meta) if waits else ""
    fix = loaders.made_in(finding.fix, own) if own else framework.in_its_words(meta, finding.fix)
    return dataclasses.replace(finding, fix=fix)


def abstained(facts: Facts, rule: Rule, unsure: Unsure) -> Abstained:
    told = UNSURE[unsure.variant]
    if isinstance(told, str):
        told = Doubt(why=told, whose="")
    why, whose, unknown = (words(facts, text, unsure.params) for text in (told.why, told.whose, told.unknown))
    return Abstained(rule.id, rule.slug, why, whose, unsure.cause, unsure.ns, unknown, unsure.variant, unsure.params)


def _confidence(facts: Facts, sure: Sure) -> tuple[Confidence, str]:
    """And why it is no other."""
    if sure.level is not None:
        return sure.level, _reasons(facts, sure.doubts)
    reasons: list[Said] = []
    level = facts.level
    if level != "high":
        reasons.append(Said("few_steps"))
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
        reasons.append(Said("exact", {"samples": Count(samples) if samples else None}))
    if sure.doubts and level == "high":
        level = "medium"
    return level, _reasons(facts, (*reasons, *sure.doubts))


def _reasons(facts: Facts, said: tuple[Said, ...]) -> str:
    return words(facts, "{said}", {"said": said})
