"""The verdict on a run: which finding it is about, what kind of answer it is, and the clauses that say it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from trainperf.findings.frames import is_framework, is_functional
from trainperf.findings.gpu import BETWEEN
from trainperf.findings.messages import TEXTS, words
from trainperf.findings.model import Abstained, Finding, Params, Said
from trainperf.findings.module_calls import ModuleCalls
from trainperf.findings.own_code import FORWARD, forward_beside_layers
from trainperf.findings.text import Count, Names, Ns, Share, fill
from trainperf.findings.thresholds import limit
from trainperf.runfile.schema import CAUSES, MACHINE

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.frames import Label
    from trainperf.findings.gpu import Gpu
    from trainperf.findings.model import Cell

_WORK = ("compute", "python", "gpu_wait", "launch", "collective")  # what training is made of
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
    clauses: tuple[Said, ...] = ()  # that the text is made of

    @property
    def of_compute(self) -> bool:
        """Whether it says no more than that the steps compute: if that could be faster, no check has asked."""
        names = (c.params.get("name") for c in self.clauses if c.key == "bound")
        bound = any(isinstance(name, Said) and name.key in ("compute", "gpu_wait") for name in names)
        return not self.finding and not self.look and (bound or any(c.key == "gpu_bound" for c in self.clauses))


def judge(facts: Facts, found: Sequence[Finding], abstained: Sequence[Abstained]) -> Verdict:
    """`found`: the costliest first, warnings before infos."""
    if not facts.steps:
        return _said(facts, "none", _no_step(facts))
    top = next((f for f in found if f.severity != "info"), None)
    if top is not None:
        return _of_finding(facts, _lead(found, top), found, abstained)
    if facts.too_few:
        return _of_few_steps(facts)
    if facts.gpu is not None:
        return _of_device(facts, facts.gpu, found, abstained)
    return _of_host(facts, found, abstained)


def cost_text(finding: Finding) -> str:
    """ "8.1 ms/step (57%)", or "2 of 24 steps, 820 ms each (40% of the run)"."""
    cost = _cost(finding)
    return fill(TEXTS[cost.key], cost.params, TEXTS)


def worth_a_look(found: Iterable[Finding]) -> bool:
    """Whether one that is no warning costs as much as one."""
    return any(f.cost_ns and f.share >= limit("warn_share") for f in found)


def _said(facts: Facts, kind: Kind, *clauses: Said | None, finding: str = "", look: str = "") -> Verdict:
    kept = tuple(clause for clause in clauses if clause is not None)
    text = words(facts, "{clauses}", {"clauses": kept})
    return Verdict(text, finding, kind, look, kept)


def _no_step(facts: Facts) -> Said:
    if facts.run.still_runs:
        return Said("nothing_yet")
    if facts.run.ended == "killed":
        return Said("killed")
    return Said("no_step" if facts.run.meta.get("torch") else "no_torch")


# -- about a finding


def _of_finding(facts: Facts, top: Finding, found: Sequence[Finding], abstained: Sequence[Abstained]) -> Verdict:
    head = {
        "idle": _idle(facts, facts.gpu) if facts.gpu is not None else None,
        "paid": _paid(found, top),
        "slug": top.slug,
        "cost": _cost(top) if top.cost_ns or top.told_ns else None,
        "title": top.title,
    }
    clauses = (_slow_part(found, top), *_untold_row(facts, top, abstained), _larger(found, top), _of_others(found, top))
    return _said(facts, "finding", Said("top", head), *clauses, finding=top.id)


def _lead(found: Sequence[Finding], top: Finding) -> Finding:
    """The costliest warning; or an info, where one option saves more than that costs."""
    options = [f for f in found if f.severity == "info" and f.drop_in]
    most = max(options, key=lambda f: f.cost_ns * f.fix_share, default=top)
    return most if most.cost_ns * most.fix_share > top.cost_ns + top.told_ns else top


def _cost(f: Finding) -> Said:
    if not f.cost_ns and f.told_ns:
        by = Names(f.told_by) if f.told_by else Said("other_findings")
        return Said("costs_told", {"told": Ns(f.told_ns), "by": by})
    if f.steps_affected * 2 < f.steps and f.steps_affected:
        each = Ns(f.cost_ns * f.affected_share / f.steps_affected)
        steps = {"affected": Count(f.steps_affected), "steps": Count(f.steps), "several": f.steps_affected > 1}
        return Said("costs_in_few", {**steps, "each": each, "share": Share(f.share)})
    return Said("costs", {"each": Ns(f.cost_ms_per_step * 1e6), "share": Share(f.share)})


def _paid(found: Sequence[Finding], top: Finding) -> Said | None:
    """What compiling or starting the workers took, where that is more than what the verdict is about: the run was
    mostly that."""
    once = (f for f in found if f.role == "once" and f.severity == "info")
    paid = max(once, key=lambda f: f.cost_ns, default=None)
    if paid is None or paid.cost_ns <= top.cost_ns + top.told_ns:
        return None
    return Said("paid", {"title": paid.title, "share": Share(paid.share)})


def _slow_part(found: Sequence[Finding], top: Finding) -> Said | None:
    """Which part of the run is slow because of what the verdict is about; what others do varies anyway, and so does all
    that is computed, with the inputs or the CPU's clock."""
    if top.by_others or top.cause == "compute":
        return None
    locators = (f for f in found if f.role == "locator" and f is not top and not f.by_others)
    where = next((f for f in locators if f.cause == top.cause), None)
    return Said("slow_part", {"part": where.slow_part}) if where is not None and where.slow_part is not None else None


def _larger(found: Sequence[Finding], top: Finding) -> Said | None:
    """What is no warning, such as validation of a third of the run, and costs more than what the verdict is about."""
    # Infos of locators are of what varies by itself: inputs, the CPU's clock, a busier machine.
    costs = (f for f in found if f.severity == "info" and f.role == "cost")
    infos = (f for f in costs if f.cause not in MACHINE and not f.by_others)
    most = max(infos, key=lambda f: f.cost_ns, default=None)
    if most is None or not worth_a_look([most]) or most.cost_ns <= top.cost_ns + top.told_ns:
        return None
    return Said("larger", {"slug": most.slug, "share": Share(most.share)})


def _of_others(found: Sequence[Finding], top: Finding) -> Said | None:
    """What other programs took, where that is more than what the verdict is about."""
    others = (f for f in found if f.by_others and f.cause in MACHINE)
    machines = next((f for f in others if f.cost_ns > top.cost_ns), None)
    if machines is None or machines is top:
        return None
    return Said("of_others", {"brief": machines.brief or machines.title, "share": Share(machines.share)})


def _untold(facts: Facts) -> list[tuple[int, str]]:
    """By cause, the largest first: what no finding has told, though it is large enough. The training's own work is no
    trouble."""
    left = [(sum(facts.ledger.cells(c).values()), c) for c in CAUSES if c not in _WORK]
    left.append((unexplained_ns(facts), "compute outside of training"))
    least = {"validation": limit("validation_info_share")}
    return sorted((x for x in left if facts.share(x[0]) >= least.get(x[1], limit("warn_share"))), reverse=True)


def _untold_row(facts: Facts, top: Finding, abstained: Sequence[Abstained]) -> list[Said]:
    """The largest trouble that no finding tells, where it is larger than the verdict's."""
    unsure = [a for a in abstained if _left(facts, a) > top.cost_ns + top.told_ns]
    if nobodys := _nobodys(facts, unsure):
        return nobodys
    untold = sorted([*_untold(facts), (unexplained_forward_ns(facts), "compute in forward")], reverse=True)
    untold = [(ns, cause) for ns, cause in untold if facts.share(ns) >= limit("warn_share")]
    # With a device what counts is its idleness, which the verdict begins with.
    if facts.gpu is not None or not untold or untold[0][0] <= top.cost_ns + top.told_ns:
        return []
    ns, cause = untold[0]
    key = "more_unseen" if cause == "unknown" else "more_untold"
    return [Said(key, {"share": Share(facts.share(ns)), "cause": cause})]


# -- too few steps


def _of_few_steps(facts: Facts) -> Verdict:
    seen = Said("few_idle", {"share": Share(facts.gpu.idle())}) if facts.gpu is not None else _not_seen(facts)
    head = Said("too_few")
    return _said(facts, "none", head, seen, *_unsampled(facts), _swallowed(facts))


def _unsampled(facts: Facts) -> list[Said]:
    """Why the cause of few and short steps is not known, and what to do."""
    unknown = facts.share(facts.cause_ns("unknown"))
    if unknown < limit("unknown_share") or facts.of_trace or facts.samples():
        return []
    why = facts.off("gil_holds") or Said("too_short")
    # Nothing else marks where the body of a plain loop begins.
    plain = not facts.run.loaders and "framework" not in facts.run.meta
    return [Said("unsampled", {"share": Share(unknown), "why": why}), Said("run_more", {"plain": plain})]


def _swallowed(facts: Facts) -> Said | None:
    """A run.step() that stands before the loop, not in it, makes one step of the whole loop."""
    most = int(facts.run.steps.optimizer_steps.max(initial=0))
    return Said("swallowed", {"steps": most, "alone": facts.steps == 1}) if most >= _SWALLOWED else None


# -- without a finding


def _of_device(facts: Facts, gpu: Gpu, found: Sequence[Finding], abstained: Sequence[Abstained]) -> Verdict:
    nobodys, slowed = _nobodys(facts, abstained), _slowed(facts)
    kind: Kind = "partly" if nobodys or slowed else "healthy"
    if gpu.busy() >= limit("gpu_bound_share"):
        head = Said("gpu_bound", {"share": Share(gpu.busy())})
        return _said(facts, kind, head, *_nothing(found, nobodys), *slowed, look=_look(found))
    if facts.share(gpu.unseen_ns) >= limit("warn_share"):
        return _said(facts, "none", Said("idle_unclear", {"idle": _idle(facts, gpu)}))
    causes = sorted(((ns, cause) for cause, ns in gpu.idle_causes.items() if cause != "unknown"), reverse=True)
    most = [
        f"{TEXTS['between'] if cause == BETWEEN else cause} {facts.share(ns):.0%}"
        for ns, cause in causes[:2]
        if facts.share(ns) >= 0.005
    ]
    # An info: to be told, and nothing to mend.
    teller = next((f for f in found if f.idle_ns and f.idle_ns >= limit("most_share") * gpu.idle_ns), None)
    if teller is not None and not worth_a_look([teller]):
        teller = None
    told = [_share_of(teller, "info_on_device")] if teller is not None else []
    rest = (*told, *_nothing(found, nobodys, told=teller))
    shares = {"share": Share(gpu.idle()), "busy": Share(gpu.busy())}
    head = Said("gpu_idle", {**shares, "rest": rest, "most": Names(most) or None})
    return _said(facts, kind, head, *slowed, look=_look(found, teller))


def _share_of(finding: Finding, key: str, cause: str | None = None) -> Said:
    return Said(key, {"title": finding.title, "share": Share(finding.share), "cause": cause})


def _of_host(facts: Facts, found: Sequence[Finding], abstained: Sequence[Abstained]) -> Verdict:
    ns, cause = max((facts.cause_ns(c), c) for c in CAUSES if c != "unknown")
    missing = _missing(facts)
    # Anything this large that no rule spoke of was too uncertain, and is not to be denied.
    both = unsplit(facts)
    large = [(n, c) for n, c in _untold(facts) if c != "unknown"]
    if large:
        return _said(facts, "none", _unsure(facts, large[:2], both), *missing)
    nobodys, usual = _nobodys(facts, abstained), _usual(facts)
    kind: Kind = "partly" if missing or nobodys else "healthy"
    teller = next((f for f in found if _is_most(f, cause, ns)), None)
    if teller is not None:
        head = _share_of(teller, "info", cause if _in_cause(teller, cause, facts) else None)
        return _said(facts, kind, head, *_nothing(found, nobodys, usual, teller), *missing, look=_look(found, teller))
    look = _look(found)
    if both is not None and cause in both.causes:
        on_cpu = Share(facts.share(sum(map(facts.cause_ns, both.causes))))
        # Whose it is, the head says: trouble may be in it.
        rest = [] if nobodys and not look else _nothing(found, [], usual, other=True)
        return _said(
            facts, "none", Said("on_cpu", {"share": on_cpu, "native": both.causes[1]}), *rest, *missing, look=look
        )
    name = Said(cause) if cause in ("compute", "gpu_wait", "launch") else Said("mostly", {"cause": cause})
    phase = _main_phase(facts, cause, ns)
    where: Params = {"phase": phase if phase != "other" else None, "beyond": phase == "other" and not facts.inference}
    head = Said("bound", {"name": name, "share": Share(facts.share(ns)), "cause": cause, **where})
    return _said(facts, kind, head, *_nothing(found, nobodys, usual), *missing, look=look)


def _missing(facts: Facts) -> list[Said]:
    """What could not be looked at, or was on and is not known."""
    unknown = facts.share(facts.cause_ns("unknown"))
    seen = (
        _not_seen(facts),
        *_slowed(facts),
        Said("gil_unmeasured") if facts.gil_unmeasured else None,
        Said("unknown", {"share": Share(unknown)}) if unknown >= limit("unknown_share") else None,
    )
    return [clause for clause in seen if clause is not None]


def _is_most(finding: Finding, cause: str, ns: int) -> bool:
    """An info that the verdict begins with: it costs more than the largest cause, or is most of that, and that is no
    work of the loop's. Compiling is no such work, whatever it is made of."""
    if not finding.cost_ns:
        return False
    same = finding.cause == cause and finding.cost_ns >= limit("most_share") * ns
    return (same and (cause not in _WORK or finding.role == "once")) or finding.cost_ns > ns


def _in_cause(finding: Finding, cause: str, facts: Facts) -> bool:
    """Whether most of its cost is in this cause."""
    return facts.by_cause(finding.claims).get(cause, 0) >= limit("half_share") * finding.cost_ns


def _nobodys(facts: Facts, abstained: Sequence[Abstained]) -> list[Said]:
    """What is as large as a warning, and whose it is was not told."""
    large = [(a, Share(share)) for a in abstained if (share := facts.share(_left(facts, a))) >= limit("warn_share")]
    few = Names(f"{share} {a.whose}" for a, share in large if not a.unknown)
    unclear = [
        Said("unclear_whose", {"share": share, "whose": a.whose, "unknown": a.unknown})
        for a, share in large
        if a.unknown
    ]
    return [*([Said("nobodys", {"shares": few})] if few else []), *unclear]


def _left(facts: Facts, unsure: Abstained) -> int:
    """What no finding has told of it; with a device no more than that idled for."""
    left = min(unsure.ns, sum(facts.ledger.cells(unsure.cause).values()))
    return left if facts.gpu is None else min(left, sum(facts.ledger.idle([unsure.cause]).values()))


def _unsure(facts: Facts, untold: Sequence[tuple[int, str]], both: Unsplit | None) -> Said:
    """The largest part of a step, and the troubles that no rule told."""
    rows = [(c,) for c in CAUSES if both is None or c not in both.causes] + ([both.causes] if both is not None else [])
    shares = {"+".join(row): facts.share(sum(map(facts.cause_ns, row))) for row in rows if row != ("unknown",)}
    most = max(shares, key=lambda name: shares[name])
    parts = Names(f"{facts.share(ns):.0%} {cause}" for ns, cause in untold)
    if most in [cause for _, cause in untold]:
        return Said("unclear", {"parts": parts})
    of_most: Params = {"share": Share(shares[most]), "most": most}
    return Said("unclear_parts", {**of_most, "parts": parts, "several": len(parts) > 1})


def _usual(facts: Facts) -> list[Said]:
    """Work that was asked for, as large as a warning, and not so large that it is told."""
    share = facts.share(facts.cause_ns("validation"))
    usual = limit("warn_share") <= share < limit("validation_info_share")
    return [Said("usual", {"share": Share(share)})] if usual else []


def _nothing(
    found: Iterable[Finding],
    nobodys: list[Said],
    usual: Sequence[Said] = (),
    told: Finding | None = None,
    *,
    other: bool = False,
) -> list[Said]:
    """That there is no warning, and what is as large as one beside an info that is `told` already, is `nobodys`, or
    `usual`. `other`: than what it is said of."""
    large = sorted((f for f in found if f is not told and worth_a_look([f])), key=lambda f: -f.cost_ns)
    if large:
        costs = tuple(Said("info_costs", {"slug": f.slug, "share": Share(f.share)}) for f in large[:_MOST_INFOS])
        return [Said("no_warning", {"costs": costs}), *nobodys]
    if nobodys:
        return nobodys
    key = "no_other_trouble" if other or usual or told is not None else "no_trouble"
    return [*usual, Said(key, {"share": Share(limit("warn_share"))})]


def _look(found: Iterable[Finding], told: Finding | None = None) -> str:
    """The costliest, beside an info that is `told` already, of those that cost as much as a warning; "" without one."""
    large = [f for f in found if f is not told and worth_a_look([f])]
    return max(large, key=lambda f: f.cost_ns).id if large else ""


def _not_seen(facts: Facts) -> Said | None:
    return Said("gpu_not_seen", {"why": facts.gpu_unseen}) if facts.gpu_unseen else None


def _slowed(facts: Facts) -> list[Said]:
    """Whether a mode was on that slows the training's own operations: how much of them it was is not known."""
    if facts.run.anomaly_percent >= 100 * limit("warn_share"):
        return [Said("anomaly")]
    return [Said("profiled")] if facts.run.profiled_percent >= 100 * limit("warn_share") else []


def _idle(facts: Facts, gpu: Gpu) -> Said:
    """ "GPU idle 39%", and how much of it nothing explains."""
    unseen = facts.share(gpu.unseen_ns)
    shown = Share(unseen) if unseen >= limit("unknown_share") else None
    return Said("idle", {"share": Share(gpu.idle()), "unseen": shown})


def _main_phase(facts: Facts, cause: str, ns: int) -> str | None:
    """The phase that most of a cause is in."""
    by_phase: dict[str, int] = {}
    for (phase, _), part in facts.cells(cause).items():
        by_phase[phase] = by_phase.get(phase, 0) + part
    phase = max(by_phase, key=lambda p: by_phase[p], default="")
    return phase if phase and by_phase[phase] > limit("most_share") * ns else None


# -- what it cannot explain: compute that no finding claims and that is not known to be the training's own; Python and
# native code that too few samples tell apart


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
