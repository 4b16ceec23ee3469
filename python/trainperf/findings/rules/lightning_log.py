"""TP707: the calls of Lightning's self.log take a notable part of the step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings import log_calls
from trainperf.findings.facts import plural
from trainperf.findings.model import Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts


class LightningLog:
    id = "TP707"
    slug = "lightning-log"
    limits = log_calls.LIMITS
    needs: tuple[str, ...] = ("gil_holds",)

    def check(self, facts: Facts) -> Outcome:
        calls = log_calls.log_calls(facts)
        if calls.severity is None:
            return None
        details, cost, samples = calls.details, sum(calls.claims.values()), sum(d.count for d in calls.details)
        spots = facts.spots(details)
        top = spots[0]
        return facts.finding(
            (self.id, self.slug),
            severity=calls.severity,
            cause=facts.main_cause(calls.claims),
            claims=calls.claims,
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
            fix=log_calls.FEWER,
            will_not_help="self.log_dict: it calls self.log for each metric; a larger log_every_n_steps: that only "
            "writes less often; torch.compile",
        )
