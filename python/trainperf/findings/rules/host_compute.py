"""TP310: native code of the loop's own, outside of forward, backward and optimizer, takes much of the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainperf.findings import loaders
from trainperf.findings.facts import plural
from trainperf.findings.frames import is_trainings_own
from trainperf.findings.model import Abstained, Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.run import Frame


def _the_loops(stack: Sequence[Frame]) -> bool:
    """Clipping gradients, or an optimizer of torch that no hook saw, is training and not beside it."""
    return not any(is_trainings_own(f.file) for f in stack)


class HostCompute:
    id = "TP310"
    slug = "host-compute"
    limits = Limits(limit("warn_share"), limit("critical_share"))
    needs: tuple[str, ...] = ("gil_holds", "stacks")

    def check(self, facts: Facts) -> Outcome:
        feeds_device = facts.run.feeds_device
        cells = facts.cells("launch" if feeds_device else "compute", ["other"])
        whole = sum(cells.values())
        if facts.grade(whole, self.limits) is None:
            return None
        if feeds_device:
            return Abstained(self.id, self.slug, "with a device, native code may be waiting for it")
        samples = facts.samples(phases=["other"], states=["native"])
        count = sum(d.count for d in samples)
        if count < limit("min_samples"):
            return Abstained(
                self.id, self.slug, f"only {plural(count, 'sample')} of native code on the training thread: run longer"
            )
        spots = facts.spots(samples, keep=_the_loops)
        if not spots or spots[0].samples < limit("min_samples"):
            return None
        top = spots[0]
        claims = loaders.spread(cells, int(whole * sum(s.share for s in spots)))
        cost = sum(claims.values())
        severity = facts.grade(cost, self.limits)
        if severity is None:
            return None
        # Without torch's optimizers, the loop's own update of the weights is here as well.
        if not facts.run.phase_ns("optimizer"):
            severity = "info"
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="compute",
            claims=claims,
            title="the loop computes outside of forward, backward and optimizer",
            confidence=facts.confidence(samples=sum(s.samples for s in spots)),
            evidence=(
                f"{facts.of_step(cost)} is native code (NumPy, pandas, tensors) between the phases of training",
                *(
                    f"{s.share:.0%} of {plural(count, 'sample')} in {facts.label(s)}"
                    for s in spots[:3]
                    if s.share >= limit("show_share")
                ),
            ),
            who=(facts.step_thread_name,),
            where=facts.place(top.frame),
            why=f"{facts.step_thread_name} computes in {facts.label(top)}",
            fix="# move it out of the loop, do it every N steps, or in another process:\nif step % 50 == 0: ...",
            will_not_help="a faster model or more DataLoader workers: it is neither training nor data",
        )
