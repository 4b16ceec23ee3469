"""TP310: native code of the loop's own, beside the training itself, takes much of the step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings.facts import plural
from trainperf.findings.framework import main_cause
from trainperf.findings.model import Abstained, Limits, Outcome
from trainperf.findings.own_code import native_cells, own_code
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts


class HostCompute:
    id = "TP310"
    slug = "host-compute"
    limits = Limits(limit("warn_share"), limit("critical_share"))
    needs: tuple[str, ...] = ("gil_holds", "stacks")

    def check(self, facts: Facts) -> Outcome:
        mine = own_code(facts, "native")
        severity = facts.grade(mine.ns, self.limits)
        top = mine.spots[0] if mine.spots else None
        if severity is None or top is None or top.samples < limit("min_samples"):
            return self._blind(facts)
        # Without torch's optimizers, the loop's own update of the weights is here as well.
        if not facts.run.phase_ns("optimizer"):
            severity = "info"
        python = mine.share(mechanism="python")
        own = mine.share(phase="forward") > 0.5
        title = "before it calls the model" if own else "outside of forward, backward and optimizer"
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause=main_cause(facts, mine.claims),
            claims=mine.claims,
            title=f"the loop computes {title}",
            confidence=facts.confidence(samples=mine.samples),
            evidence=(
                f"{facts.of_step(mine.ns)} is native code (NumPy, pandas, tensors) between the phases of training",
                f"{python:.0%} of it is Python in the same functions" if python >= limit("warn_share") else "",
                *(
                    f"{s.share:.0%} of {plural(mine.samples, 'sample')} of it in {facts.label(s)}"
                    for s in mine.spots[:3]
                    if s.share >= limit("show_share")
                ),
            ),
            who=(facts.step_thread_name,),
            where=facts.where(top),
            why=f"{facts.step_thread_name} computes in {facts.label(top)}",
            fix="# in a DataLoader worker: make the batch in Dataset.__getitem__ or collate_fn"
            if own
            else "# move it out of the loop, do it every N steps, or in another process:\nif step % 50 == 0: ...",
            will_not_help="a faster model"
            if own
            else "a faster model or more DataLoader workers: it is neither training nor data",
        )

    def _blind(self, facts: Facts) -> Abstained | None:
        """Where much native code runs outside of the phases, and it cannot be told whose."""
        if facts.grade(facts.matrix["other", "native"], self.limits) is None:
            return None
        if facts.run.feeds_device and facts.gpu is None:
            return Abstained(self.id, self.slug, "with a device, native code may be waiting for it")
        count = sum(d.count for d in facts.samples(phases={p for p, _ in native_cells(facts)}, states=["native"]))
        if count >= limit("min_samples"):
            return None
        why = f"only {plural(count, 'sample')} of native code on the training thread: run longer"
        return Abstained(self.id, self.slug, why)
