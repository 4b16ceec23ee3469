"""TP310: native code of the loop's own, beside the training itself, takes much of the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainperf.findings import loaders
from trainperf.findings.facts import Spot, plural
from trainperf.findings.frames import in_module, is_other_library, is_the_loops, is_trainings_own, user_frame
from trainperf.findings.model import Abstained, Cell, Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.runfile import Detail, Frame


def _the_loops(stack: Sequence[Frame]) -> bool:
    """Clipping gradients, or an optimizer of torch that no hook saw, is training and not beside it."""
    return not any(is_trainings_own(f.file) for f in stack)


def _before_the_model(stack: Sequence[Frame]) -> bool:
    """What ends with a backward is called forward, batches that the loop makes itself included: they are told from the
    model where another library computes (NumPy, pandas, PIL), outside of any module."""
    return is_the_loops(stack) and is_other_library(stack[0].file) and not in_module(stack)


# Where the loop's own code may be, and which stacks are.
_WHERE = {"other": _the_loops, "forward": _before_the_model}


class HostCompute:
    id = "TP310"
    slug = "host-compute"
    limits = Limits(limit("warn_share"), limit("critical_share"))
    needs: tuple[str, ...] = ("gil_holds", "stacks")

    def check(self, facts: Facts) -> Outcome:
        cells: dict[Cell, int] = {(phase, "native"): facts.matrix[phase, "native"] for phase in _WHERE}
        if facts.grade(sum(cells.values()), self.limits) is None:
            return None
        beside = facts.grade(cells["other", "native"], self.limits) is not None
        if facts.run.meta.get("feeds_device") == "1" and facts.gpu is None:
            return Abstained(self.id, self.slug, "with a device, native code may be waiting for it") if beside else None
        samples = facts.samples(phases=_WHERE, states=["native"])
        count = sum(d.count for d in samples)
        if count < limit("min_samples"):
            why = f"only {plural(count, 'sample')} of native code on the training thread: run longer"
            return Abstained(self.id, self.slug, why) if beside else None
        claims: dict[Cell, int] = {}
        mine: list[Detail] = []
        for phase, keep in _WHERE.items():
            here = [d for d in samples if d.phase == phase]
            kept = [d for d in here if user_frame(stack := facts.run.stack(d.stack)) is not None and keep(stack)]
            whole = sum(d.ns for d in here)
            if kept:
                cell = (phase, "native")
                part = int(cells[cell] * sum(d.ns for d in kept) / whole)
                claims |= loaders.spread({cell: cells[cell]}, part)
                mine += kept
        spots: list[Spot] = facts.spots(mine)
        if not spots or spots[0].samples < limit("min_samples"):
            return None
        top = spots[0]
        cost = sum(claims.values())
        severity = facts.grade(cost, self.limits)
        if severity is None:
            return None
        # Without torch's optimizers, the loop's own update of the weights is here as well.
        if not facts.run.phase_ns("optimizer"):
            severity = "info"
        own = sum(d.ns for d in mine if d.phase == "forward") > sum(d.ns for d in mine) / 2
        title = "before it calls the model" if own else "outside of forward, backward and optimizer"
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause=facts.cause_of(("other", "native")),
            claims=claims,
            title=f"the loop computes {title}",
            confidence=facts.confidence(samples=sum(s.samples for s in spots)),
            evidence=(
                f"{facts.of_step(cost)} is native code (NumPy, pandas, tensors) between the phases of training",
                *(
                    f"{s.share:.0%} of {plural(sum(s.samples for s in spots), 'sample')} of it in {facts.label(s)}"
                    for s in spots[:3]
                    if s.share >= limit("show_share")
                ),
            ),
            who=(facts.step_thread_name,),
            where=facts.place(top.frame),
            why=f"{facts.step_thread_name} computes in {facts.label(top)}",
            fix="# in a DataLoader worker: make the batch in Dataset.__getitem__ or collate_fn"
            if own
            else "# move it out of the loop, do it every N steps, or in another process:\nif step % 50 == 0: ...",
            will_not_help="a faster model"
            if own
            else "a faster model or more DataLoader workers: it is neither training nor data",
        )
