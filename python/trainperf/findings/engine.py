"""Runs the rules on a run: findings costliest first, no nanosecond counted twice, and the verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainperf.findings import render
from trainperf.findings.facts import Facts
from trainperf.findings.ledger import Share as Left
from trainperf.findings.messages import TEXTS, words
from trainperf.findings.model import Abstained, Finding, Said, Severity, Standing, Unsure
from trainperf.findings.rule import Rule
from trainperf.findings.text import Names, Ns, Share
from trainperf.findings.thresholds import limit
from trainperf.findings.triage import Triage, triage
from trainperf.findings.verdict import Kind, Unsplit, Verdict, cost_text, judge, unsplit, worth_a_look
from trainperf.runfile.schema import MACHINE, ON_CPU

if TYPE_CHECKING:
    from trainperf.runfile import RunReader

__all__ = ["Findings", "Kind", "Verdict", "cost_text", "find", "worth_a_look"]

_ALWAYS = ("gil_waits", "gil_holds", "run_delay")  # a run without an entry for these could not look


@dataclass(frozen=True, slots=True)
class Findings:
    verdict: Verdict
    findings: tuple[Finding, ...]  # warnings and criticals before infos, each costliest first
    abstained: tuple[Abstained, ...]
    unsplit: Unsplit | None = None  # causes to be shown as one
    triage: Triage | None = None  # None: too little was measured


def find(run: RunReader, rules: tuple[Rule, ...] | None = None, *, standing: Standing = "") -> Findings:
    """What a person should know about a run. `standing`: among the ranks of its job."""
    if rules is None:
        from trainperf.findings.rules import ALL

        rules = ALL
    facts = Facts(run, standing=standing)
    found: list[Finding] = []
    abstained: list[Abstained] = []
    for rule in rules:
        outcome = _outcome(facts, rule)
        if isinstance(outcome, Abstained):
            abstained.append(outcome)
        elif outcome is not None:
            tellers = [f.id for f in found if f.cause == outcome.cause and f.cost_ns]
            kept = _claim(facts, rule, outcome, tellers)
            if kept is not None:
                found.append(kept)
    found.sort(key=lambda f: (f.severity == "info", -f.cost_ns, f.id))
    _own_first(found)
    verdict = judge(facts, found, abstained)
    shown = unsplit(facts) if facts.steps else None
    return Findings(verdict, tuple(found), tuple(abstained), shown, triage(facts))


def _outcome(facts: Facts, rule: Rule) -> Finding | Abstained | None:
    """In words."""
    outcome = _blind(facts, rule) or rule.check(facts)
    if isinstance(outcome, Unsure):
        return render.abstained(facts, rule, outcome)
    return render.finding(facts, rule, outcome) if outcome is not None else None


def _blind(facts: Facts, rule: Rule) -> Unsure | None:
    if not facts.steps:
        return Unsure("no_steps")
    for probe in rule.needs:
        if probe in _ALWAYS or probe in facts.run.tiers:
            why = facts.off(probe)
            if why is not None:
                return Unsure("probe_off", {"why": why})
    return None


def _own_first(found: list[Finding]) -> None:
    """What other programs do comes after the largest trouble of the run's own, unless that is much smaller."""
    if not found or not found[0].by_others:
        return
    own = next((f for f in found if f.severity != "info" and f.cause != found[0].cause), None)
    if own is not None and found[0].cost_ns < limit("others_lead_ratio") * own.cost_ns:
        found.remove(own)
        found.insert(0, own)


def _claim(facts: Facts, rule: Rule, finding: Finding, tellers: Sequence[str]) -> Finding | None:
    """The finding with what is left of its claims; None when that is too little to speak of."""
    left = facts.ledger.fit(finding)
    cost, taken = left.cost_ns, left.wanted_ns - left.cost_ns
    regraded = _regraded(facts, rule, finding, left)
    if regraded is None:
        return None
    facts.ledger.take(left, finding.of_functions)
    # Once is no rate.
    once = regraded != "info" and finding.steps_affected == 1 < facts.steps and facts.is_short
    waits_apart = _waits_apart(facts, finding, left)
    by = Names(tellers) if tellers else Said("other_findings")
    lines = (
        Said("once", {"run": Ns(facts.wall_ns)}) if once else None,
        # Of one that is wholly told its heading says so.
        Said("told_of_it", {"told": Ns(taken), "by": by})
        if finding.role == "locator" and taken > 0 and cost > 0
        else None,
        _of_runnable(facts, rule, finding, left) if regraded != "info" and not once else None,
        _of_device(facts, rule, finding, cost) if _hides(finding, left) and not finding.tells_idle else None,
        Said("waits_apart", {"share": Share(facts.waits_share)}) if waits_apart else None,
        _rests_on(facts, left),
        facts.when(finding.claims) if finding.role != "locator" else None,
    )
    return dataclasses.replace(
        finding,
        claims=left.claims,
        cost_ns=cost,
        share=facts.share(cost),
        cost_ms_per_step=facts.ms_per_step(cost),
        severity="info" if once else regraded,
        evidence=(
            *finding.evidence,
            *(words(facts, TEXTS[line.key], line.params) for line in lines if line is not None),
        ),
        idle_ns=sum(left.idle.values()) if left.idle is not None else None,
        told_ns=taken,
        waits_apart=waits_apart,
        told_by=tuple(tellers) if taken else (),
    )


def _rests_on(facts: Facts, left: Left) -> Said | None:
    """For a cost that is what the device lost, where that was seen in some of the steps only."""
    return facts.gpu.rests_on if facts.gpu is not None and left.by_device and left.cost_ns else None


def _hides(finding: Finding, left: Left) -> bool:
    """Whether it was graded by the host's time, and what counts is what the device lost by that."""
    return left.by_device and finding.idle_claims is None and bool(finding.claims)


def _regraded(facts: Facts, rule: Rule, finding: Finding, left: Left) -> Severity | None:
    taken = left.wanted_ns - left.cost_ns
    if finding.role == "locator":  # stays where others have told all of it, without a cost of its own
        if taken <= 0:
            return finding.severity
        return "info" if left.cost_ns == 0 or finding.severity == "info" else "warning"
    hides = _hides(finding, left)
    if taken <= 0 and not hides:
        return finding.severity
    regraded = facts.grade(left.cost_ns, rule.limits, machine=finding.cause in MACHINE)
    if regraded is None and (not hides or taken > 0 or finding.severity == "info"):
        return None
    return "info" if finding.severity == "info" else regraded or "info"


def _of_loop(left: Left) -> int:
    """Of its cost: none of the machine's doing."""
    return left.cost_ns - sum(ns for (_, mechanism), ns in left.claims.items() if mechanism in MACHINE)


def _of_runnable(facts: Facts, rule: Rule, finding: Finding, left: Left) -> Said | None:
    """For a warning that only the time that the machine left to the run makes one."""
    share = facts.loop_share(_of_loop(left))
    if finding.cause in MACHINE or not facts.share(left.cost_ns) < rule.limits.warn <= share:
        return None
    return Said("of_runnable", {"share": Share(share)})


def _waits_apart(facts: Facts, finding: Finding, left: Left) -> bool:
    """Who waits leaves its CPU to others meanwhile: without that wait it is kept off no less."""
    worked = sum(ns for (_, mechanism), ns in left.claims.items() if mechanism in ON_CPU)
    by_host = left.cost_ns > 0 and finding.cause not in MACHINE and not left.by_device
    worked_most = worked >= limit("half_share") * left.cost_ns
    alone = _of_loop(left) == left.cost_ns
    return by_host and alone and worked_most and facts.waits_share >= limit("warn_share")


def _of_device(facts: Facts, rule: Rule, finding: Finding, idle_ns: int) -> Said | None:
    """What the device lost by what the host did."""
    gpu = facts.gpu
    if gpu is None:
        return None
    each = Ns(idle_ns / facts.steps)
    if facts.grade(idle_ns, rule.limits, machine=finding.cause in MACHINE) is not None:
        return Said("idled_for_it", {"each": each, "share": Share(idle_ns / gpu.idle_ns)})
    if facts.share(gpu.idle_causes["gpu_wait"]) >= limit("warn_share"):
        # What follows a wait of the host is that wait's: without it the device would have had work.
        return Said("idled_after_wait", {"each": each})
    unseen = facts.share(gpu.unseen_ns) >= limit("unknown_share")
    return Said("idled_as_known" if unseen else "had_work", {"each": each})
