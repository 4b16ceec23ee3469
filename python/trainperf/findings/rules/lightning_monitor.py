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
        found = [p for p in framework.parts(facts, "callback") if framework.is_monitor(p) and p.other_ns]
        if not found:
            return None
        found = [p for p in found if p.other_ns >= limit("felt_share") * found[0].other_ns]
        claims = framework.claims_of_all(facts, [(p, p.other_ns) for p in found])
        severity = facts.grade(sum(claims.values()), self.limits)
        if severity is None:
            return None
        calls = " and ".join(f"{p.name}()" for p in found)
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause=facts.main_cause(claims),
            claims=claims,
            title=f"{' and '.join(p.name for p in found)} slow{'s' if len(found) == 1 else ''} down what "
            f"{'it measures' if len(found) == 1 else 'they measure'}",
            confidence=facts.confidence(),
            evidence=tuple(
                f"{facts.of_step(p.other_ns)} in {p.name}: {h.name}, {plural(h.count, 'call')},"
                f" {ms(h.other_ns / max(1, h.count))} each"
                for p in found
                for h in p.hooks[:1]
            ),
            who=tuple(f"{p.name}.{p.hooks[0].name}" for p in found),
            where="",
            why="; ".join(f"{p.name} {framework.MONITORS[p.name]}" for p in found),
            fix=f"# remove {calls} from Trainer(callbacks=[...]) when you are done",
            will_not_help="a larger log_every_n_steps, for ThroughputMonitor: it waits at every batch"
            if any(p.name == "ThroughputMonitor" for p in found)
            else "more workers",
        )
