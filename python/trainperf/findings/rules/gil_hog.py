"""TP201: one thread holds the GIL while the training thread waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings.facts import Holder, function_name, ms, plural
from trainperf.findings.model import Abstained, Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts

# A thread that runs Python gives the GIL up when asked, after sys.getswitchinterval(); a C call need not. So waits for
# the former last this long, or longer where it lacks a CPU; for the latter what is left of the call: anything.
_SWITCH_INTERVAL_NS = 5_000_000
_SHORTEST, _LONGEST = 0.98 * _SWITCH_INTERVAL_NS, 1.1 * _SWITCH_INTERVAL_NS


def could_not_look(facts: Facts, rule: tuple[str, str]) -> Abstained | None:
    """Why the GIL rules cannot speak: no tier, or one that does not know who waits."""
    why = facts.off("gil_waits")
    if why is None and facts.tier("gil_waits").startswith("busy-only"):
        why = "gil_waits: only who holds the GIL is known here, not who waits for it"
    return Abstained(*rule, why) if why is not None else None


def holder_evidence(facts: Facts, holder: Holder) -> str:
    at = f", in {facts.label(holder.spot)}" if holder.spot is not None else ""
    return f"{holder.name} held it for {holder.share:.0%} of the wait{at}"


def gives_up(facts: Facts, hog: Holder) -> bool | None:
    """Whether the hog gives the GIL up when it is asked to (Python), or holds it to the end of a C call; None: unclear.

    Only waits that are timed exactly can tell.
    """
    if facts.tier("gil_waits") != "exact":
        return None
    waits = _single_waits(facts, hog)
    if not waits:
        return None
    # Measured with two threads on two busy cores. Python: 50 to 75 % of the waits last an interval, none is shorter;
    # json.dumps of 10 ms: 5 %, and a third is shorter.
    shorter = sum(ns < _SHORTEST for ns in waits) / len(waits)
    an_interval = sum(_SHORTEST <= ns <= _LONGEST for ns in waits) / len(waits)
    longer_ns = sum(ns for ns in waits if ns > _LONGEST)
    if an_interval >= 0.4 and shorter <= 0.1:
        return True
    return False if longer_ns > 0.25 * sum(waits) and an_interval < 0.2 else None


def _single_waits(facts: Facts, hog: Holder) -> list[int]:
    """Of the steps that keep their timeline. A wait's slices (each <= 5 ms) follow each other without a gap."""
    waits: list[int] = []
    for step in facts.run.kept_steps.index.tolist():
        end = -1
        for s in facts.run.segments(step):
            if s.mechanism != "gil_wait" or s.thread != hog.thread:
                continue
            if s.start_ns == end:
                waits[-1] += s.end_ns - s.start_ns
            else:
                waits.append(s.end_ns - s.start_ns)
            end = s.end_ns
    return waits


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
        yields = gives_up(facts, hog)
        spot = hog.spot
        what = facts.label(spot) if spot is not None else "code that could not be read"
        function = function_name(spot)
        phases = sorted(claims.items(), key=lambda kv: -kv[1])[:2]
        return facts.finding(
            rule,
            severity=severity,
            cause="gil_wait",
            claims=claims,
            title=f"the training thread waits for the GIL, which {hog.name} holds",
            affected=facts.affected("gil_wait"),
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
            f"concurrent.futures.ProcessPoolExecutor(1).submit({function}, ...)"
            + ("\nsys.setswitchinterval(0.0005)  # until then: it gives the GIL up sooner" if yields else ""),
            will_not_help="more DataLoader workers, a larger batch, a faster GPU"
            + ("; sys.setswitchinterval: the C call does not give the GIL up" if yields is False else ""),
        )
