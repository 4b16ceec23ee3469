"""TP312: a model runs that no backward goes through, or hardly any: evaluation, rollouts, a frozen one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings.extra_forwards import extra_forwards
from trainperf.findings.model import Abstained, Limits, Outcome, Severity
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.extra_forwards import ExtraForwards
    from trainperf.findings.facts import Facts


# Title, fix, what will not help.
_OUTSIDE = (
    "a model runs outside of the training step: evaluation or extra forward passes",
    "# run it less often (evaluation, a memory bank), on a part of the data, in large batches, without gradients:",
    "anything that makes training steps faster; DataLoader workers",
)
_WITHIN_STEP = (
    "a model runs with hardly any backward: a frozen one, rollouts, or evaluation",
    "# a frozen model: once for each sample, before training; rollouts: many at once; evaluation: less often",
    "a faster backward or optimizer; DataLoader workers",
)
_FROZEN_LAYERS = (
    "most of the model's forward is in frozen layers",
    "# compute what the frozen layers return once for each sample, before training, and train on that:",
    "a faster backward or optimizer; DataLoader workers",
)


class ExtraForward:
    id = "TP312"
    slug = "extra-forward"
    limits = Limits(limit("validation_info_share"), None)
    needs: tuple[str, ...] = ("stacks",)

    def check(self, facts: Facts) -> Outcome:
        mine = extra_forwards(facts) if not facts.inference else None
        severity = _severity(facts, mine, self.limits) if mine is not None else None
        if mine is None or severity is None or mine.samples < limit("min_samples"):
            return None
        top = mine.spots[0]
        if mine.may_train:
            return Abstained(
                self.id,
                self.slug,
                f"whether {facts.label(top)} evaluates a model or trains it: {facts.of_step(mine.ns)} is there, and "
                "backward is long enough to be of that too",
                "compute in modules between the phases",
                facts.main_cause(mine.claims),
                mine.ns,
                "whether it is trained",
            )
        title, fix, will_not_help = _WITHIN_STEP if mine.within_step else _OUTSIDE
        does = f"runs a model that {'little' if mine.within_step else 'no'} backward goes through"
        layers = ", ".join(filter(None, mine.frozen))
        if mine.frozen:  # the model is trained, with these layers as they are: that was asked for
            severity, (title, fix, will_not_help) = "info", _FROZEN_LAYERS
            does = "runs a model with frozen layers" + (f": {layers}" if layers else "")
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause=facts.main_cause(mine.claims),
            claims=mine.claims,
            title=title,
            affected=mine.steps or None,
            confidence=facts.confidence(
                samples=mine.samples,
                doubts=("a forward whose backward comes after the next fetch of a batch would look the same",)
                if not mine.within_step and not mine.steps
                else (),
            ),
            evidence=(
                f"{facts.of_step(mine.ns)} is in modules that are called there: {mine.why}",
                *mine.evidence(facts),
            ),
            who=(facts.step_thread_name,),
            where=facts.where(top),
            why=f"{facts.label(top)} {does}",
            fix=f"{fix}\nwith torch.inference_mode(): ...",
            fix_share=1 - mine.needed_ns / mine.ns,
            will_not_help=will_not_help,
        )


def _severity(facts: Facts, mine: ExtraForwards, limits: Limits) -> Severity | None:
    """An info up to where less of it is the largest gain, as a part of a loss is needed (a teacher), and what is done
    now and then was asked for. Beside the training of each step it is trouble of any kind's size."""
    each_step = not mine.within_step and not mine.steps
    return facts.grade(mine.ns, limits) if each_step else facts.grade_of_asked_work(mine.ns, limits)
