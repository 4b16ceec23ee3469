"""TP313: a mode for debugging was left on: autograd's anomaly detection, or a trace function of Python's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainperf.findings.debug_modes import ModeCost, anomaly_cost, tracer_cost
from trainperf.findings.facts import ms, plural
from trainperf.findings.model import Abstained, Finding, Limits, Outcome, Severity
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts

_ANOMALY_OFF = "torch.autograd.set_detect_anomaly(False)  # and no `with torch.autograd.detect_anomaly()`"
_ANOMALY_OFF_LIGHTNING = "Trainer(..., detect_anomaly=False)"
_TRACER_OFF = {
    "sys.settrace": "sys.settrace(None)  # run without the debugger or coverage that set it",
    "sys.monitoring": "sys.monitoring.free_tool_id(id)  # run without the tool that registered",
    "sys.setprofile": "sys.setprofile(None)  # run without the profiler that set it",
}


class DebugMode:
    id = "TP313"
    slug = "debug-mode"
    limits = Limits(limit("warn_share"), limit("critical_share"))
    needs: tuple[str, ...] = ()

    def check(self, facts: Facts) -> Outcome:
        found = [f for f in (self._anomaly(facts), self._tracer(facts)) if f is not None]
        if found:
            return max(found, key=lambda f: f.cost_ns)
        unpriced = [*self._too_few_samples(facts), *_without_price(facts)]
        return Abstained(self.id, self.slug, "; ".join(unpriced)) if unpriced else None

    def _too_few_samples(self, facts: Facts) -> Iterator[str]:
        for name, percent in (
            ("anomaly detection", facts.run.anomaly_percent),
            (f"a trace function ({facts.run.meta.get('tracer_kind', 'sys.settrace')})", facts.run.traced_percent),
        ):
            if percent >= 100 * limit("warn_share"):
                yield f"{name} was on for {percent}% of the time: too few samples show its cost"

    def _anomaly(self, facts: Facts) -> Finding | None:
        cost = anomaly_cost(facts)
        severity = self._priced(facts, cost)
        if severity is None:
            return None
        lightning = "lightning" in facts.run.meta.get("framework", "")
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause=facts.main_cause(cost.claims),
            claims=cost.claims,
            title="autograd's anomaly detection is on (lower bound, NaN checks excluded)",
            confidence=facts.confidence(samples=cost.samples),
            evidence=(
                f"at least {ms(cost.ns / facts.steps)}/step formats Python stacks, by {plural(cost.samples, 'sample')}",
                f"it was on for {facts.run.anomaly_percent}% of the time",
                "its NaN checks in backward also cost time, which this number excludes",
                *_without_price(facts),
            ),
            who=(facts.step_thread_name,),
            why="autograd stores the Python stack of every operation, and checks every gradient for NaN",
            fix=_ANOMALY_OFF_LIGHTNING if lightning else _ANOMALY_OFF,
            saves_more=True,
            will_not_help="torch.compile, a faster model, more DataLoader workers",
        )

    def _tracer(self, facts: Facts) -> Finding | None:
        percent = facts.run.traced_percent
        if percent < 100 * limit("half_share") or facts.too_few:
            return None
        how = facts.run.meta.get("tracer_kind", "sys.settrace")
        cost = tracer_cost(facts)
        severity = self._priced(facts, cost)
        name = facts.run.meta.get("tracer", "").rpartition(":")[2]
        python = facts.share(facts.cause_ns("python"))
        if severity is None:
            cost = ModeCost({}, ())
        # A tracer slows all Python: where that is much of the step, the mode comes before what else is said of it.
        unpriced: Severity = "warning" if python >= limit("critical_share") else "info"
        return facts.finding(
            (self.id, self.slug),
            severity=severity or unpriced,
            cause=facts.main_cause(cost.claims) if cost.claims else "python",
            claims=cost.claims,
            title=f"a trace function is set ({how})",
            confidence=facts.confidence(samples=cost.samples if cost.claims else None),
            evidence=(
                f"{name or 'a function in C'} was set for {percent}% of the time",
                f"at least {ms(cost.ns / facts.steps)}/step runs in it, by {plural(cost.samples, 'sample')}"
                if cost.claims
                else f"how much of the {python:.0%} Python time it costs was not measured",
                *_without_price(facts),
            ),
            who=(facts.step_thread_name,),
            why="Python calls the trace function at every call and return, with sys.settrace also at every line",
            fix=_TRACER_OFF.get(how, _TRACER_OFF["sys.settrace"]),
            fix_share=1.0 if cost.claims else 0.0,
            saves_more=True,
            will_not_help="optimizing single functions",
        )

    def _priced(self, facts: Facts, cost: ModeCost) -> Severity | None:
        return facts.grade(cost.ns, self.limits) if cost.samples >= limit("min_samples") else None


def _without_price(facts: Facts) -> Iterator[str]:
    """Modes that were on, and slow down the operations themselves: no sample tells by how much."""
    least = 100 * limit("warn_share")
    if facts.run.profiled_percent >= least:
        on = f"PyTorch's profiler was on for {facts.run.profiled_percent}% of the time"
        yield f"{on}: its cost in each operation was not measured"
    if facts.run.feeds_device and facts.run.meta.get("launch_blocking") == "1":
        why = "each launch waited for its kernel, and for how long was not measured"
        yield f"CUDA_LAUNCH_BLOCKING=1 was set: {why}; unset it"
    percent = facts.number("deterministic_percent")
    if percent >= least:
        on = f"deterministic algorithms were on for {percent:.0f}% of the time"
        yield f"{on}: how much faster the others are was not measured"
