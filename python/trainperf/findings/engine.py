"""Runs the rules on a run: findings costliest first, no nanosecond counted twice, and the verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from trainperf.findings import render
from trainperf.findings.facts import Facts, ms, plural
from trainperf.findings.gpu import BETWEEN, NOT_SEEN, Gpu
from trainperf.findings.inference_words import of_inference
from trainperf.findings.model import Abstained, Diagnosis, Finding, Standing, Unsure
from trainperf.findings.rule import Rule
from trainperf.findings.split import Unsplit, unsplit
from trainperf.findings.thresholds import limit
from trainperf.findings.unexplained import unexplained_forward_ns, unexplained_ns
from trainperf.findings.vocabulary import CAUSES, MACHINE, ON_CPU

if TYPE_CHECKING:
    from trainperf.runfile import RunReader

_WORK = ("compute", "python", "gpu_wait", "launch", "collective")  # what training is made of
_IDLE = {BETWEEN: "gaps between kernels"}
_ALWAYS = ("gil_waits", "gil_holds", "run_delay")  # a run without an entry for these could not look
_PAID_ONCE = ("compile-warmup", "gpu-warm-up", "worker-startup")  # as infos: a longer run pays no more for them
_MOST_INFOS = 2  # in the verdict
_SWALLOWED = 16  # optimizer steps in one step: more than any closure or pair of networks has


# "partly": nothing was found, and something that matters could not be looked at, or a mode slowed all operations;
# "none": too little to judge by.
Kind = Literal["finding", "healthy", "partly", "none"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line, and the finding that it is about ("" when nothing was found)."""

    text: str
    finding: str
    kind: Kind
    look: str = ""  # of a verdict without a finding: the info that it names beside, as large as a warning


@dataclass(frozen=True, slots=True)
class Findings:
    verdict: Verdict
    findings: tuple[Finding, ...]  # warnings and criticals before infos, each costliest first
    abstained: tuple[Abstained, ...]
    unsplit: Unsplit | None = None  # causes to be shown as one


def find(run: RunReader, rules: tuple[Rule, ...] | None = None, *, standing: Standing = "") -> Findings:
    """What a person should know about a run. `standing`: among the ranks of its job."""
    if rules is None:
        from trainperf.findings.rules import ALL

        rules = ALL
    facts = Facts(run, standing=standing)
    found: list[Finding] = []
    abstained: list[Abstained] = []
    for rule in rules if facts.steps else ():
        blind = _blind(facts, rule)
        outcome = blind if blind is not None else rule.check(facts)
        if isinstance(outcome, Unsure):
            outcome = render.abstained(facts, rule, outcome)
        elif isinstance(outcome, Diagnosis):
            outcome = render.finding(facts, rule, outcome)
        if isinstance(outcome, Abstained):
            abstained.append(outcome)
        elif outcome is not None:
            tellers = [f.id for f in found if f.cause == outcome.cause and f.cost_ns]
            kept = _claim(facts, rule, outcome, tellers)
            if kept is not None:
                found.append(kept)
    if not facts.steps:
        abstained = [Abstained(rule.id, rule.slug, "no step was seen") for rule in rules]
    if facts.inference:
        found = [finding if finding.variant else of_inference(finding) for finding in found]
    found.sort(key=lambda f: (f.severity == "info", -f.cost_ns, f.id))
    _own_first(found)
    verdict = _verdict(facts, found, abstained)
    return Findings(verdict, tuple(found), tuple(abstained), unsplit(facts) if facts.steps else None)


def _own_first(found: list[Finding]) -> None:
    """What other programs do comes after the largest trouble of the run's own, unless that is much smaller."""
    if not found or not found[0].by_others:
        return
    own = next((f for f in found if f.severity != "info" and f.cause != found[0].cause), None)
    if own is not None and found[0].cost_ns < limit("others_lead_ratio") * own.cost_ns:
        found.remove(own)
        found.insert(0, own)


def _blind(facts: Facts, rule: Rule) -> Abstained | None:
    for probe in rule.needs:
        if probe in _ALWAYS or probe in facts.run.tiers:
            why = facts.off(probe)
            if why is not None:
                return Abstained(rule.id, rule.slug, why)
    return None


def _claim(facts: Facts, rule: Rule, finding: Finding, tellers: Sequence[str]) -> Finding | None:
    """The finding with what is left of its claims; None when that is too little to speak of."""
    share = facts.ledger.fit(finding)
    cost, taken = share.cost_ns, share.wanted_ns - share.cost_ns
    # What tells where or when (it claims nothing, or what another has told already) stays, without a cost of its own.
    tells_when = rule.id == "TP401"
    severity = finding.severity
    evidence = finding.evidence
    if tells_when and taken > 0:
        severity = "info" if cost == 0 or severity == "info" else "warning"
    # Graded by the host's time so far; what counts with a device is what that lost.
    hides = share.by_device and finding.idle_claims is None and bool(finding.claims)
    if (taken > 0 or hides) and not tells_when:
        regraded = facts.grade(cost, rule.limits, machine=finding.cause in MACHINE)
        if regraded is None and (not hides or taken > 0 or severity == "info"):
            return None
        severity = "info" if severity == "info" else regraded or "info"
    facts.ledger.take(share)
    if severity != "info" and finding.steps_affected == 1 < facts.steps and facts.is_short:
        severity = "info"  # once is no rate
        evidence = (*evidence, f"once in {ms(facts.wall_ns)}: a longer run tells whether it repeats")
    if tells_when and taken > 0 and cost > 0:  # of one that is wholly told its heading says so
        told = f"reported by {' and '.join(tellers)}" if tellers else "reported by other findings"
        evidence = (*evidence, f"{ms(taken)} of its cost is {told}")
    machines = finding.cause in MACHINE
    of_loop = cost - sum(ns for (_, mechanism), ns in share.claims.items() if mechanism in MACHINE)
    if not machines and severity != "info" and facts.share(cost) < rule.limits.warn <= facts.loop_share(of_loop):
        evidence = (*evidence, f"{facts.loop_share(of_loop):.0%} of runnable time (CPU contention excluded)")
    if hides and facts.gpu is not None and not finding.tells_idle:
        evidence = (*evidence, _device_evidence(facts, facts.gpu, cost, regraded is not None))
    # Who waits leaves its CPU to others meanwhile: without that wait it is kept off no less.
    worked = sum(ns for (_, mechanism), ns in share.claims.items() if mechanism in ON_CPU)
    by_host = cost > 0 and not machines and not share.by_device
    worked_most = worked >= limit("half_share") * cost
    waits_apart = by_host and of_loop == cost and worked_most and facts.waits_share >= limit("warn_share")
    if waits_apart:
        evidence = (
            *evidence,
            f"its own waits for a CPU are not in this: {facts.waits_share:.0%} of the run, reported separately",
        )
    when = "" if tells_when else facts.when(finding.claims)
    if when:
        evidence = (*evidence, when)
    return dataclasses.replace(
        finding,
        claims=share.claims,
        cost_ns=cost,
        share=facts.share(cost),
        cost_ms_per_step=facts.ms_per_step(cost),
        severity=severity,
        evidence=evidence,
        idle_ns=sum(share.idle.values()) if share.idle is not None else None,
        told_ns=taken,
        waits_apart=waits_apart,
        told_by=tuple(tellers) if taken else (),
    )


def _device_evidence(facts: Facts, gpu: Gpu, idle_ns: int, matters: bool) -> str:
    each = ms(idle_ns / facts.steps)
    if matters:
        return f"{gpu.name} idled {each} a step for it: {idle_ns / gpu.idle_ns:.0%} of its idle time"
    if facts.share(gpu.idle_causes["gpu_wait"]) >= limit("warn_share"):
        # What follows a wait of the host is that wait's: without it the device would have had work.
        return f"{gpu.name} idled only {each} a step for it alone; more of it after a wait of the host, told as that"
    if facts.share(gpu.unseen_ns) >= limit("unknown_share"):
        return f"{gpu.name} idled only {each} a step for it, as far as its idleness has a known cause"
    return f"{gpu.name} had work meanwhile: it idled only {each} a step for it"


def _no_step(facts: Facts) -> str:
    """Why, and what to do."""
    mark = "call trainperf.step() after each step"
    if facts.run.meta.get("torch"):
        seen = "no backward, no optimizer step and no loop over a DataLoader ran in this process"
        return f"{seen}: {mark}, or watch the process that trains"
    return f"PyTorch was never imported in this process: watch the one that trains, or {mark}"


def _verdict(facts: Facts, found: list[Finding], abstained: list[Abstained]) -> Verdict:
    if not facts.steps and facts.run.still_runs:
        return Verdict("no step has ended yet", "", "none")
    if not facts.steps and facts.run.ended == "killed":
        return Verdict("the run was killed, or still runs: nothing of its steps was written yet", "", "none")
    if not facts.steps:
        return Verdict(f"no training step was seen: {_no_step(facts)}", "", "none")
    top = next((f for f in found if f.severity != "info"), None)
    gpu = facts.gpu
    if top is not None:
        device = f"{_idle_text(facts, gpu)}: " if gpu is not None else ""
        cost = f", {cost_text(top)}" if top.cost_ns or top.told_ns else ""
        before, after = (
            _warm_up(found, top),
            f"{_slow_part(found, top)}{_untold_row(facts, top, abstained)}"
            f"{_larger(found, top)}{_of_others(found, top)}",
        )
        text = f"{device}{before}{top.slug}{cost}: {top.title}{after}"
        return Verdict(text, top.id, "finding")
    if facts.too_few:
        device = f"; the GPU idles {gpu.idle():.0%} of it" if gpu is not None else _not_seen(facts)
        seen = f"only {plural(facts.steps, 'step')} seen: too few for a verdict"
        return Verdict(f"{seen}{device}{_unsampled(facts)}{_swallowed(facts)}", "", "none")
    if gpu is not None:
        return _device_verdict(facts, gpu, found, abstained)
    causes = sorted(((facts.cause_ns(c), c) for c in CAUSES if c != "unknown"), reverse=True)
    ns, cause = causes[0]
    share = facts.share(ns)
    unknown = facts.share(facts.cause_ns("unknown"))
    missing = _not_seen(facts) + _slowed(facts)
    missing += "; the GIL was not measured" if any(a.id == "TP201" for a in abstained) else ""
    if unknown >= limit("unknown_share"):
        missing += f"; for {unknown:.0%} of the time the cause is not known"
    # Anything this large that no rule spoke of was too uncertain, and is not to be denied.
    both = unsplit(facts)
    large = [(n, c) for n, c in _untold(facts) if c != "unknown"]
    if large:
        return Verdict(f"no clear verdict: {_unsure(facts, large[:2], both)}{missing}", "", "none")
    nobodys = _nobodys(facts, abstained)
    usual = _usual(facts)
    nothing = f"{_nothing(found, nobodys, usual)}{missing}"
    kind: Kind = "partly" if missing or nobodys else "healthy"
    teller = next((f for f in found if _is_most(f, cause, ns)), None)
    if teller is not None:
        beside = f"{_nothing(found, nobodys, usual, teller)}{missing}"
        most = f", most of it {cause}" if _in_cause(teller, cause, facts) else ""
        text = f"{teller.title}: {teller.share:.0%} of step time{most}; {beside}"
        return Verdict(text, "", kind, _look(found, teller))
    if both is not None and cause in both.causes:
        on_cpu = facts.share(sum(map(facts.cause_ns, both.causes)))
        few = f"too few samples to tell Python from {both.causes[1]}"
        look = _look(found)
        # Whose it is, `few` says: trouble may be in it.
        rest = missing if nobodys and not look else f"; {_nothing(found, '', usual, other=True)}{missing}"
        return Verdict(f"on the CPU: {on_cpu:.0%} of step time; {few}{rest}", "", "none", look)
    name = {"compute": "compute-bound", "gpu_wait": "GPU-bound", "launch": "launch-bound"}.get(cause, f"mostly {cause}")
    where = _mostly_in(facts, cause, ns)
    return Verdict(f"{name}: {share:.0%} of step time is {cause}{where}; {nothing}", "", kind, _look(found))


def _is_most(finding: Finding, cause: str, ns: int) -> bool:
    """An info that the verdict begins with: it costs more than the largest cause, or is most of that, and that is no
    work of the loop's. Compiling is no such work, whatever it is made of."""
    if not finding.cost_ns:
        return False
    once = finding.slug in _PAID_ONCE
    same = finding.cause == cause and finding.cost_ns >= limit("most_share") * ns
    return (same and (cause not in _WORK or once)) or finding.cost_ns > ns


def _in_cause(finding: Finding, cause: str, facts: Facts) -> bool:
    """Whether most of its cost is in this cause."""
    return facts.by_cause(finding.claims).get(cause, 0) >= limit("half_share") * finding.cost_ns


def _nobodys(facts: Facts, abstained: list[Abstained]) -> str:
    """What is as large as a warning, and whose it is was not told; "" where there is none such."""
    large = [(a, share) for a in abstained if (share := facts.share(_left(facts, a))) >= limit("warn_share")]
    few = [f"{share:.0%} {a.whose}" for a, share in large if not a.unknown]
    said = [f"too few samples to attribute {' and '.join(few)}: run longer"] if few else []
    said += [f"{share:.0%} is {a.whose}: it is unclear {a.unknown}" for a, share in large if a.unknown]
    return "; ".join(said)


def _left(facts: Facts, unsure: Abstained) -> int:
    """What no finding has told of it; with a device no more than that idled for."""
    left = min(unsure.ns, sum(facts.ledger.cells(unsure.cause).values()))
    return left if facts.gpu is None else min(left, sum(facts.ledger.idle([unsure.cause]).values()))


def _unsure(facts: Facts, untold: Sequence[tuple[int, str]], both: Unsplit | None) -> str:
    """The largest part of a step, and the troubles that no rule told."""
    rows = [(c,) for c in CAUSES if both is None or c not in both.causes] + ([both.causes] if both is not None else [])
    shares = {"+".join(row): facts.share(sum(map(facts.cause_ns, row))) for row in rows if row != ("unknown",)}
    most = max(shares, key=lambda name: shares[name])
    parts = [f"{facts.share(ns):.0%} {cause}" for ns, cause in untold]
    if most in [cause for _, cause in untold]:
        return f"step time is {' and '.join(parts)}, which is unexplained"
    are = "is" if len(parts) == 1 else "are"
    return f"step time is {shares[most]:.0%} {most}; {' and '.join(parts)} {are} unexplained"


def _usual(facts: Facts) -> str:
    """Work that was asked for, as large as a warning, and not so large that it is told."""
    share = facts.share(facts.cause_ns("validation"))
    return f"validation is {share:.0%}; " if limit("warn_share") <= share < limit("validation_info_share") else ""


def _nothing(
    found: list[Finding], nobodys: str, usual: str = "", told: Finding | None = None, *, other: bool = False
) -> str:
    """That there is no warning, and what is as large as one beside an info that is `told` already, is `nobodys`, or
    `usual`. `other`: than what it is said of."""
    large = sorted((f for f in found if f is not told and worth_a_look([f])), key=lambda f: -f.cost_ns)
    if large:
        costs = " and ".join(f"{f.slug} costs {f.share:.0%}" for f in large[:_MOST_INFOS])
        return f"no warning, but {costs}{nobodys and f'; {nobodys}'}"
    if nobodys:
        return nobodys
    which = "other trouble" if other or usual or told is not None else "trouble"
    return f"{usual}no {which} found above {limit('warn_share'):.0%}"


def worth_a_look(found: Iterable[Finding]) -> bool:
    """Whether one that is no warning costs as much as one."""
    return any(f.cost_ns and f.share >= limit("warn_share") for f in found)


def _look(found: Iterable[Finding], told: Finding | None = None) -> str:
    """The costliest, beside an info that is `told` already, of those that cost as much as a warning; "" without one."""
    large = [f for f in found if f is not told and worth_a_look([f])]
    return max(large, key=lambda f: f.cost_ns).id if large else ""


def _warm_up(found: list[Finding], top: Finding) -> str:
    """What compiling or starting the workers took, where that is more than what the verdict is about: the run was
    mostly that."""
    paid = max(
        (f for f in found if f.slug in _PAID_ONCE and f.severity == "info"), key=lambda f: f.cost_ns, default=None
    )
    if paid is None or paid.cost_ns <= top.cost_ns + top.told_ns:
        return ""
    return f"{paid.title}: {paid.share:.0%} of step time; in addition, "


def _slow_part(found: list[Finding], top: Finding) -> str:
    """Which part of the run is slow because of what the verdict is about; what others do varies anyway, and so does all
    that is computed, with the inputs or the CPU's clock."""
    if top.by_others or top.cause == "compute":
        return ""
    mine = (f for f in found if f.id == "TP401" and f is not top and f.cause == top.cause and not f.by_others)
    uneven = next(mine, None)
    if uneven is None or " because of " not in uneven.title:  # it has several causes
        return ""
    return f"; {uneven.title.partition(' runs ')[0]} is slow because of it"


def _larger(found: list[Finding], top: Finding) -> str:
    """What is no warning, such as validation of a third of the run, and costs more than what the verdict is about."""
    infos = (f for f in found if f.severity == "info" and f.slug not in _PAID_ONCE and f.cause not in MACHINE)
    # TP401's infos are of what varies by itself: inputs, the CPU's clock, a busier machine.
    infos = (f for f in infos if f.id != "TP401" and not f.by_others)
    most = max(infos, key=lambda f: f.cost_ns, default=None)
    if most is None or not worth_a_look([most]) or most.cost_ns <= top.cost_ns + top.told_ns:
        return ""
    return f"; in addition, {most.slug} costs {most.share:.0%}"


def _of_others(found: list[Finding], top: Finding) -> str:
    """What other programs took, where that is more than what the verdict is about."""
    others = (f for f in found if f.by_others and f.cause in MACHINE)
    machines = next((f for f in others if f.cost_ns > top.cost_ns), None)
    if machines is None:
        return ""
    return f"; in addition, {machines.title.rpartition(': ')[2]}: {machines.share:.0%}"  # without what waits there


def _untold(facts: Facts) -> list[tuple[int, str]]:
    """By cause, the largest first: what no finding has told, though it is large enough. The training's own work is no
    trouble."""
    left = [(sum(facts.ledger.cells(c).values()), c) for c in CAUSES if c not in _WORK]
    left.append((unexplained_ns(facts), "compute outside of training"))
    least = {"validation": limit("validation_info_share")}
    return sorted((x for x in left if facts.share(x[0]) >= least.get(x[1], limit("warn_share"))), reverse=True)


def _untold_row(facts: Facts, top: Finding, abstained: list[Abstained]) -> str:
    """The largest trouble that no finding tells, where it is larger than the verdict's."""
    unsure = [a for a in abstained if _left(facts, a) > top.cost_ns + top.told_ns]
    if nobodys := _nobodys(facts, unsure):
        return f"; {nobodys}"
    untold = sorted([*_untold(facts), (unexplained_forward_ns(facts), "compute in forward")], reverse=True)
    untold = [(ns, cause) for ns, cause in untold if facts.share(ns) >= limit("warn_share")]
    # With a device what counts is its idleness, which the verdict begins with.
    if facts.gpu is not None or not untold or untold[0][0] <= top.cost_ns + top.told_ns:
        return ""
    ns, cause = untold[0]
    why = "its cause was not seen" if cause == "unknown" else "unexplained"
    return f"; more, {facts.share(ns):.0%}, is {cause}: {why}"


def _swallowed(facts: Facts) -> str:
    """A run.step() that stands before the loop, not in it, makes one step of the whole loop."""
    most = int(facts.run.steps.optimizer_steps.max(initial=0))
    if most < _SWALLOWED:
        return ""
    where = "it" if facts.steps == 1 else "one of them"
    return f"; {most} optimizer steps ran in {where}: once run.step() is called, it alone says where steps end"


def _unsampled(facts: Facts) -> str:
    """Why the cause of few and short steps is not known, and what to do."""
    unknown = facts.share(facts.cause_ns("unknown"))
    if unknown < limit("unknown_share") or facts.of_trace or facts.samples():
        return ""
    why = facts.off("gil_holds") or "too short for a sample of what ran"
    # Nothing else marks where the body of a plain loop begins.
    plain = not facts.run.loaders and "framework" not in facts.run.meta
    call = ", or call run.step() after each: else the first begins at its backward" if plain else ""
    return f"; {unknown:.0%} of it unknown: {why}; run more{call}"


def _not_seen(facts: Facts) -> str:
    return f"; the GPU was not seen ({facts.gpu_unseen})" if facts.gpu_unseen else ""


def _slowed(facts: Facts) -> str:
    """Whether a mode was on that slows the training's own operations: how much of them it was is not known."""
    if facts.run.anomaly_percent >= 100 * limit("warn_share"):
        return "; anomaly detection was on: how much of forward and backward it took is not known"
    if facts.run.profiled_percent >= 100 * limit("warn_share"):
        return "; PyTorch's profiler was on: how much of each operation it took is not known"
    return ""


def _idle_text(facts: Facts, gpu: Gpu) -> str:
    """ "GPU idle 39%", and how much of it nothing explains."""
    unseen = facts.share(gpu.unseen_ns)
    most = f", {unseen:.0%} {NOT_SEEN}" if unseen >= limit("unknown_share") else ""
    return f"GPU idle {gpu.idle():.0%}{most}"


def _device_verdict(facts: Facts, gpu: Gpu, found: list[Finding], abstained: list[Abstained]) -> Verdict:
    """Nothing was found, and the device was seen."""
    nobodys, slowed = _nobodys(facts, abstained), _slowed(facts)
    if gpu.busy() >= limit("gpu_bound_share"):
        text = f"GPU-bound: the GPU is busy {gpu.busy():.0%} of the time; {_nothing(found, nobodys)}{slowed}"
        return Verdict(text, "", "partly" if nobodys or slowed else "healthy", _look(found))
    unseen = facts.share(gpu.unseen_ns)
    if unseen >= limit("warn_share"):
        return Verdict(f"{_idle_text(facts, gpu)}: no clear verdict", "", "none")
    causes = sorted(((ns, cause) for cause, ns in gpu.idle_causes.items() if cause != "unknown"), reverse=True)
    parts = ", ".join(
        f"{_IDLE.get(cause, cause)} {facts.share(ns):.0%}" for ns, cause in causes[:2] if facts.share(ns) >= 0.005
    )
    most = f" (most: {parts})" if parts else ""
    # An info: to be told, and nothing to mend.
    teller = next((f for f in found if f.idle_ns and f.idle_ns >= limit("most_share") * gpu.idle_ns), None)
    if teller is not None and not worth_a_look([teller]):
        teller = None
    told = f"{teller.title}, {teller.share:.0%} of step time; " if teller is not None else ""
    text = f"GPU idle {gpu.idle():.0%}, busy {gpu.busy():.0%}: {told}{_nothing(found, nobodys, told=teller)}{most}"
    return Verdict(f"{text}{slowed}", "", "partly" if nobodys or slowed else "healthy", _look(found, teller))


def _mostly_in(facts: Facts, cause: str, ns: int) -> str:
    """ ", most of it in backward", when one phase has most of a cause."""
    by_phase: dict[str, int] = {}
    for (phase, _), part in facts.cells(cause).items():
        by_phase[phase] = by_phase.get(phase, 0) + part
    phase = max(by_phase, key=lambda p: by_phase[p], default="")
    if not phase or by_phase[phase] <= limit("most_share") * ns:
        return ""
    if phase == "other" and facts.inference:
        return ""
    return ", most of it " + ("outside of forward, backward and optimizer" if phase == "other" else f"in {phase}")


def cost_text(finding: Finding) -> str:
    """ "8.1 ms/step (57%)", or "2 of 24 steps, 820 ms each (40% of the run)"."""
    if not finding.cost_ns and finding.told_ns:
        told = f"reported by {' and '.join(finding.told_by)}" if finding.told_by else "reported by other findings"
        return f"costs {ms(finding.told_ns)} in all, {told}"
    percent = f"{finding.share:.0%}"
    if finding.steps_affected * 2 < finding.steps and finding.steps_affected:
        each = finding.cost_ns * finding.affected_share / finding.steps_affected / 1e6
        every = " each" if finding.steps_affected > 1 else ""
        return f"{finding.steps_affected:,} of {finding.steps:,} steps, {_short(each)} ms{every} ({percent} of the run)"
    return f"{_short(finding.cost_ms_per_step)} ms/step ({percent})"


def _short(ms: float) -> str:
    return f"{ms:,.0f}" if ms >= 100 else (f"{ms:.1f}" if ms >= 1 else f"{ms:.2f}")
