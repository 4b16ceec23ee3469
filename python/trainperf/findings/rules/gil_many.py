"""TP202: several threads take turns with the GIL, and the training thread waits for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings.facts import ms, plural
from trainperf.findings.model import Limits, Outcome
from trainperf.findings.rules.gil_hog import could_not_look, holder_evidence
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts


class GilMany:
    id = "TP202"
    slug = "gil-many"
    limits = Limits(limit("warn_share"), limit("critical_share"))
    needs: tuple[str, ...] = ("gil_waits",)

    def check(self, facts: Facts) -> Outcome:
        rule = (self.id, self.slug)
        blind = could_not_look(facts, rule)
        if blind is not None:
            return blind
        claims = facts.cells("gil_wait")
        waited = sum(claims.values())
        severity = facts.grade(waited, self.limits)
        holders = facts.holders()
        if severity is None or (holders and holders[0].share >= limit("hog_share")):
            return None
        losing = facts.run.steps_with("gil_wait")
        waits = sum(h.waits for h in holders)
        top = holders[:3]
        first = next((h.spot for h in top if h.spot is not None), None)
        names = [h.name for h in top]
        return facts.finding(
            rule,
            severity=severity,
            cause="gil_wait",
            claims=claims,
            title=f"the training thread waits for the GIL, shared with {plural(len(holders), 'thread')}"
            if holders
            else "the training thread waits for the GIL",
            affected=facts.affected("gil_wait"),
            confidence=facts.confidence(tier=facts.tier("gil_waits"), samples=waits),
            evidence=(
                f"{facts.of_step(waited)} is waiting for the GIL ({losing} of {facts.steps} steps lose 10 % or more)",
                *(holder_evidence(facts, h) for h in top),
                f"{plural(waits, 'wait')} of {ms(sum(h.ns for h in holders) / waits)} on average" if waits else "",
            ),
            who=names,
            where=facts.place(first.frame) if first is not None else "",
            why=(
                f"{', '.join(names)} take turns with the GIL"
                + (f", mostly in {facts.label(first)}" if first is not None else "")
                if holders
                else "who held the GIL could not be read"
            ),
            fix="# fewer threads, or processes instead:\nconcurrent.futures.ProcessPoolExecutor(2)",
            will_not_help="more DataLoader workers, a larger batch, a faster GPU",
        )
