"""Puts what rules diagnose into the words of messages/."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from trainperf.findings import framework, loaders, trainer_words
from trainperf.findings.confidence import confidence
from trainperf.findings.messages import MESSAGES, TEXTS, UNSURE
from trainperf.findings.messages.catalogue import Doubt, fill, lines
from trainperf.findings.messages.general import TERMS
from trainperf.findings.model import Abstained, Affected, Diagnosis, Finding, Params, Said, Unsure
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.rule import Rule


def finding(facts: Facts, rule: Rule, d: Diagnosis) -> Finding:
    message = MESSAGES[rule.id][d.variant]
    params = {**terms(facts), **d.params}

    def words(template: str, more: Params | None = None) -> str:
        return fill(template, {**params, **(more or {})}, TEXTS)

    claim, by_cause = d.claim, facts.by_cause(d.claim.cells)
    claimed = sum(by_cause.values())
    cost = claimed if claim.idle is None else sum(claim.idle.values()) + claim.exposed_ns
    affected = d.affected if isinstance(d.affected, Affected) else Affected(d.affected or facts.steps, 1.0)
    if 2 * affected.steps >= facts.steps:
        affected = Affected(facts.steps, 1.0)
    sure, why_sure = confidence(facts.steps, d.sure)
    who = (w if isinstance(w, str) else words(TEXTS[w.key], w.params) for w in d.who)
    return _adapted(
        facts,
        Finding(
            id=rule.id,
            slug=d.slug or rule.slug,
            variant=d.variant,
            role=d.role or rule.role,
            params=d.params,
            severity=d.severity,
            cause=claim.cause,
            title=words(message.title),
            brief=words(message.brief),
            cost_ns=cost,
            share=facts.share(cost),
            cost_ms_per_step=facts.ms_per_step(cost),
            steps=facts.steps,
            steps_affected=affected.steps,
            affected_share=affected.share,
            confidence=sure,
            confidence_why=why_sure,
            evidence=tuple(filter(None, lines(message.evidence, params, TEXTS))),
            who=tuple(dict.fromkeys(filter(None, who))),
            where=d.place,
            why=words(message.why),
            fix=words(message.fix),
            will_not_help=words(message.will_not_help),
            docs=f"docs/findings/{rule.id}.md",
            claims=dict(claim.cells),
            also_causes=tuple(
                c for c, ns in by_cause.items() if c != claim.cause and ns >= limit("warn_share") * claimed
            ),
            idle_claims=claim.idle,
            exposed_ns=claim.exposed_ns,
            by_device=claim.by_device,
            by_others=d.by_others,
            fix_share=d.saves.share,
            saves_more=d.saves.more,
            finds_out=d.saves.finds_out,
            drop_in=d.saves.drop_in,
            slow_part=d.slow_part,
            tells_idle=d.tells_idle,
        ),
    )


def _adapted(facts: Facts, finding: Finding) -> Finding:
    """Its fix in the terms of who makes the loader that it is about: a hook, a trainer's method, or its options."""
    waits, meta = finding.cause == "data_wait", facts.run.meta
    hook = facts.once(framework.fetching_hook) if waits else ""
    if hook:
        who = tuple(dict.fromkeys((*finding.who, hook)))
        why = f"{finding.why}, called by {hook}" if finding.why else ""
        return dataclasses.replace(finding, who=who, why=why, fix=loaders.read_by(finding.fix, hook))
    own = trainer_words.own_loader(meta) if waits else ""
    fix = loaders.made_in(finding.fix, own) if own else trainer_words.in_its_words(meta, finding.fix)
    return dataclasses.replace(finding, fix=fix)


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
