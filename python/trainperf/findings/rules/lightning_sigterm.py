"""TP706: Lightning asks all ranks, before every batch, whether one got SIGTERM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings import framework
from trainperf.findings.facts import ms, plural
from trainperf.findings.model import Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts

PART = "SIGTERM broadcast"


class LightningSigterm:
    id = "TP706"
    slug = "lightning-sigterm"
    limits = Limits(limit("framework_part_share"), limit("critical_share"))
    needs: tuple[str, ...] = ("lightning_sigterm_broadcast",)

    def check(self, facts: Facts) -> Outcome:
        part = next((p for p in framework.parts(facts, "lightning") if p.name == PART), None)
        if part is None:
            return None
        claims = framework.claims_of(facts, part, part.other_ns)
        severity = facts.grade(sum(claims.values()), self.limits)
        if severity is None:
            return None
        count, longest = max(1, part.hooks[0].count), part.hooks[0].max_ns
        version = framework.trainer(facts).get("version", "")
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause=facts.main_cause(claims),
            claims=claims,
            title="Lightning broadcasts a SIGTERM flag to all ranks before every batch",
            confidence=facts.confidence(),
            evidence=(
                f"{plural(count, 'broadcast')}, {ms(part.other_ns / count)} each, the longest {ms(longest)}",
                "each one waits for the slowest rank, and reads its value back from the device",
            ),
            who=(facts.step_thread_name,),
            why=f"Lightning {version} does it in _TrainingEpochLoop.advance (Lightning#21487)",
            fix="# until it is mended there, and if you need no shutdown on SIGTERM:\n"
            "trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None",
            will_not_help="if one rank is slower than the others, the wait only moves into backward's all-reduce",
        )
