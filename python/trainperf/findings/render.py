"""Puts what rules diagnose into the words of messages/."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from trainperf.findings import framework, loaders, trainer_words
from trainperf.findings.confidence import confidence
from trainperf.findings.messages import MESSAGES, TEXTS, UNSURE
from trainperf.findings.messages.catalogue import Doubt, fill, lines
from trainperf.findings.messages.general import TERMS
from trainperf.findings.model import Abstained, Diagnosis, Finding, Params, Said, Unsure, role_of

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


def adapted(facts: Facts, finding: Finding) -> Finding:
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
