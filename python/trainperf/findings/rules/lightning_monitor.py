"""TP704: a callback that measures the training slows it down: ThroughputMonitor, DeviceStatsMonitor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings import framework
from trainperf.findings.facts import ms, plural
from trainperf.findings.model import Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts


class LightningMonitor:
    id = "TP704"
    slug = "lightning-monitor"
    limits = Limits(limit("framework_part_share"), limit("critical_share"))
    needs: tuple[str, ...] = ("lightning_profiler",)

    def check(self, facts: Facts) -> Outcome:
        found = [p for p in framework.parts(facts, "callback") if framework.is_monitor(p)]
        if not found:
            return None
        top = found[0]
        claims = framework.claims_of(facts, top, top.other_ns)
        severity = facts.grade(sum(claims.values()), self.limits)
        if severity is None:
            return None
        hook = top.hooks[0]
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause=framework.main_cause(facts, claims),
            claims=claims,
            title=f"{top.name} slows down what it measures",
            confidence=facts.confidence(),
            evidence=(
                f"{facts.of_step(top.other_ns)} in {top.name}",
                f"{hook.name}: {plural(hook.count, 'call')}, {ms(hook.other_ns / max(1, hook.count))} each",
            ),
            who=(f"{top.name}.{hook.name}",),
            where="",
            why=f"{top.name} {framework.MONITORS[top.name]}",
            fix=f"# remove {top.name}() from Trainer(callbacks=[...]) when you are done with it",
            will_not_help="a larger log_every_n_steps, for ThroughputMonitor: it waits at every batch"
            if top.name == "ThroughputMonitor"
            else "more workers",
        )
