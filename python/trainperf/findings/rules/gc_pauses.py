"""TP303: Python's garbage collector stops the training thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings.facts import ms, plural
from trainperf.findings.model import Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts


class GcPauses:
    id = "TP303"
    slug = "gc-pauses"
    limits = Limits(limit("rare_warn_share"), limit("critical_share"))
    needs: tuple[str, ...] = ("hook_gc",)

    def check(self, facts: Facts) -> Outcome:
        claims = facts.cells("gc")
        cost = sum(claims.values())
        severity = facts.grade(cost, self.limits)
        if severity is None:
            return None
        by_generation: dict[int, list[int]] = {}
        for d in facts.run.detail_totals("gc"):
            entry = by_generation.setdefault(d.code, [0, 0])
            entry[0] += d.ns
            entry[1] += d.count
        spans = facts.run.spans("gc")
        longest = max((s.end_ns - s.start_ns for s in spans), default=0)
        affected = facts.affected("gc")
        worst = max(by_generation, key=lambda g: by_generation[g][0], default=2)
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="gc",
            claims=claims,
            title="garbage collections stop the training thread",
            steps_affected=affected,
            confidence=facts.confidence(),
            evidence=(
                *(
                    f"generation {g}: {plural(n, 'collection')}, {ms(ns / max(1, n))} each"
                    for g, (ns, n) in sorted(by_generation.items(), key=lambda kv: -kv[1][0])
                ),
                f"the longest took {ms(longest)}" if longest else "",
                f"{affected} of {facts.steps} steps have nearly all of it" if affected < facts.steps else "",
            ),
            who=(facts.step_thread_name,),
            why=f"generation-{worst} collections walk every object that the program keeps alive",
            fix="gc.collect(); gc.freeze()  # once, after model and data are built: they are then not walked again",
            will_not_help="gc.disable() alone: cycles then leak; with it, call gc.collect() every few hundred steps",
        )
