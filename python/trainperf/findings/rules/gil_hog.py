"""TP201: one thread holds the GIL while the training thread waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings.facts import Holder, ms, plural
from trainperf.findings.model import Abstained, Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts

# A thread that runs Python gives the GIL up when asked, after sys.getswitchinterval() (5 ms); a C call need not.
_SWITCH_INTERVAL_NS = 5_000_000


def could_not_look(facts: Facts, rule: tuple[str, str]) -> Abstained | None:
    """Why the GIL rules cannot speak: no tier, or one that does not know who waits."""
    why = facts.off("gil_waits")
    if why is None and facts.tier("gil_waits").startswith("busy-only"):
        why = "gil_waits: only who holds the GIL is known here, not who waits for it"
    return Abstained(*rule, why) if why is not None else None


def holder_evidence(facts: Facts, holder: Holder) -> str:
    at = f", in {facts.label(holder.spot)}" if holder.spot is not None else ""
    return f"{holder.name} held it for {holder.share:.0%} of the wait{at}"


class GilHog:
    id = "TP201"
    slug = "gil-hog"
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
        if severity is None or not holders or holders[0].share < limit("hog_share"):
            return None
        hog = holders[0]
        losing = facts.run.steps_with("gil_wait")
        long_holds = hog.waits > 0 and waited / hog.waits > 1.3 * _SWITCH_INTERVAL_NS
        spot = hog.spot
        what = facts.label(spot) if spot is not None else "code that could not be read"
        function = spot.frame.function.rsplit(".", 1)[-1] if spot is not None else "work"
        phases = sorted(claims.items(), key=lambda kv: -kv[1])[:2]
        return facts.finding(
            rule,
            severity=severity,
            cause="gil_wait",
            claims=claims,
            title=f"the training thread waits for the GIL, which {hog.name} holds",
            steps_affected=facts.affected("gil_wait"),
            confidence=facts.confidence(
                tier=facts.tier("gil_waits"), samples=None if spot is None else max(hog.waits, 0)
            ),
            evidence=(
                f"{facts.of_step(waited)} is waiting for the GIL ({losing} of {facts.steps} steps lose 10 % or more)",
                holder_evidence(facts, hog),
                "it waits in " + " and ".join(f"{cell[0]} ({ns / waited:.0%})" for cell, ns in phases),
                f"{plural(hog.waits, 'wait')} of {ms(hog.ns / hog.waits)} on average" if hog.waits else "",
            ),
            who=(hog.name,),
            where=facts.place(spot.frame) if spot is not None else "",
            why=f"{hog.name} holds the GIL in {what}",
            fix=f"# run {function} in a process: threads share one GIL\n"
            f"concurrent.futures.ProcessPoolExecutor(1).submit({function}, ...)",
            will_not_help="more DataLoader workers, a larger batch, a faster GPU"
            + ("; sys.setswitchinterval: the C call does not give the GIL up" if long_holds else ""),
        )
