"""TP703: metrics logged with prog_bar=True make the host read them, and wait for the device, at every batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings import framework
from trainperf.findings.facts import ms, plural
from trainperf.findings.model import Abstained, Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts

PART = "metrics after each batch"


class LightningProgressBar:
    id = "TP703"
    slug = "lightning-progress-bar"
    limits = Limits(limit("framework_part_share"), limit("critical_share"))
    needs: tuple[str, ...] = ("lightning_progress_bar_metrics",)

    def check(self, facts: Facts) -> Outcome:
        settings = framework.trainer(facts)
        names = settings.get("progress_bar_metrics")
        part = next((p for p in framework.parts(facts, "lightning") if p.name == PART), None)
        if not settings or part is None:
            return None
        if not isinstance(names, list):
            return Abstained(self.id, self.slug, "the metrics on the progress bar are not known")
        if not names or facts.run.meta.get("feeds_device") != "1":
            return None  # without a device a value is there when it is asked for
        claims = framework.claims_of(facts, part, part.other_ns)
        severity = facts.grade(sum(claims.values()), self.limits)
        if severity is None:
            return None
        shown = ", ".join(str(name).rpartition(".")[2] for name in names[:3]) + (", ..." if len(names) > 3 else "")
        count = max(1, part.hooks[0].count)
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause=facts.main_cause(claims),
            claims=claims,
            title="metrics on the progress bar are read at every batch",
            confidence=facts.confidence(),
            evidence=(
                f"{plural(len(names), 'metric')} with prog_bar=True: {shown}",
                f"{ms(part.other_ns / count)} after each batch, most of it until the device has computed the value",
            ),
            who=(facts.step_thread_name,),
            why="Lightning calls .item() on each of them after every batch, however seldom the bar is drawn",
            fix='self.log("loss", loss, prog_bar=False)  # or prog_bar=batch_idx % 50 == 0',
            will_not_help="a larger refresh_rate of the progress bar, a larger log_every_n_steps",
        )
