"""TP707: the calls of Lightning's self.log take a notable part of the step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings.facts import plural
from trainperf.findings.framework import FEWER_LOG_CALLS, in_log_call
from trainperf.findings.model import Cell, Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.runfile import Detail

_CAUSES = ("python", "compute", "launch")  # of validation, of a hook or a logger others tell


class LightningLog:
    id = "TP707"
    slug = "lightning-log"
    limits = Limits(limit("warn_share"), limit("critical_share"))
    needs: tuple[str, ...] = ("gil_holds",)

    def check(self, facts: Facts) -> Outcome:
        claims, details = self._calls(facts)
        cost = sum(claims.values())
        severity = facts.grade(cost, self.limits)
        samples = sum(d.count for d in details)
        if severity is None or samples < limit("min_samples"):
            return None
        if facts.ms_per_step(cost) < limit("metric_calls_ms"):  # a few calls, in a short step
            severity = "info"
            if facts.loop_share(cost) < limit("framework_share"):
                return None
        spots = facts.spots(details)
        top = spots[0]
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause=facts.main_cause(claims),
            claims=claims,
            title="the calls of self.log take much of the step",
            confidence=facts.confidence(samples=samples),
            evidence=(
                f"{facts.of_step(cost)} in Lightning's self.log and self.log_dict, by {plural(samples, 'sample')}",
                *(
                    f"{s.share:.0%} of it in {facts.label(s)}"
                    for s in spots[:3]
                    if s is top or s.share >= limit("warn_share")
                ),
            ),
            who=(facts.step_thread_name,),
            where=facts.where(top),
            why=f"Lightning runs Python for each metric at each call: {facts.label(top)}",
            fix=FEWER_LOG_CALLS,
            will_not_help="self.log_dict: it calls self.log for each metric; a larger log_every_n_steps: that only "
            "writes less often; torch.compile",
        )

    @staticmethod
    def _calls(facts: Facts) -> tuple[dict[Cell, int], list[Detail]]:
        """What the calls took of each cell, and the samples in them: native code only where it is no wait for a
        device that was not seen. A stack that changed while it was read is lost, which is likeliest where functions
        are short, as these are: the lost ones are shared out like the others."""
        mechanisms = ("python",) if facts.run.feeds_device and facts.gpu is None else ("python", "native")
        claims: dict[Cell, int] = {}
        found: list[Detail] = []
        for cell, exact in facts.matrix.items():
            if exact <= 0 or cell[1] not in mechanisms or facts.cause_of(cell) not in _CAUSES:
                continue
            read = [d for d in facts.samples(phases=[cell[0]], states=[cell[1]]) if facts.run.stack(d.stack)]
            calls = [
                d
                for d in read
                if in_log_call(stack := facts.run.stack(d.stack)) and not facts.in_told_hook(d.phase, stack)
            ]
            whole = sum(d.ns for d in read)
            if calls and whole:
                claims[cell] = exact * sum(d.ns for d in calls) // whole
                found += calls
        return claims, found
