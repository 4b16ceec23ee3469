"""TP306: validation is a large part of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings import framework, trainer_words
from trainperf.findings.extra_forwards import extra_forwards
from trainperf.findings.facts import ms, plural
from trainperf.findings.framework import main_cause
from trainperf.findings.model import Abstained, Finding, Limits, Outcome, Severity
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts


# Title, fix, what will not help.
_OUTSIDE = (
    "a model runs outside of the training step: evaluation or extra forward passes",
    "# evaluate less often, on a part of the data, in large batches, and without gradients:",
    "anything that makes training steps faster; DataLoader workers",
)
_WITHIN_STEP = (
    "a model runs with hardly any backward: a frozen one, rollouts, or evaluation",
    "# a frozen model: once for each sample, before training; rollouts: many at once; evaluation: less often",
    "a faster backward or optimizer; DataLoader workers",
)


class Validation:
    id = "TP306"
    slug = "validation"
    limits = Limits(limit("validation_info_share"), None)
    needs: tuple[str, ...] = ("hook_eval_mode",)

    def check(self, facts: Facts) -> Outcome:
        claims = facts.cells("validation")
        cost = sum(claims.values())
        severity = self._severity(facts, cost)
        if severity is None:
            return self._outside(facts)
        total = facts.run.span_total("validation")
        affected = facts.affected("validation")
        times = total.count or affected.steps
        waits = sum(v.fetches.validation_wall_ns for v in facts.run.loaders.values())
        spots = facts.spots(facts.samples(phases=["validation"]))
        top = spots[0] if spots else None
        every = max(1, round(facts.steps / times))
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="validation",
            claims=claims,
            by_device=False,
            title="validation is a large part of the run",
            affected=affected,
            confidence=facts.confidence(),
            evidence=(
                f"{plural(times, 'validation')} in {facts.steps:,} steps, {ms(cost / times)} each",
                f"{waits / cost:.0%} of it waits for validation data" if waits and waits <= cost else "",
            ),
            who=(facts.step_thread_name,),
            where=facts.where(top),
            why=f"validation runs about every {plural(every, 'step')} and takes {ms(cost / times)}",
            fix=f"Trainer(val_check_interval={2 * every}, check_val_every_n_epoch=None)"
            f"  # now about every {plural(every, 'step')}; or limit_val_batches=0.5"
            if framework.trainer(facts)
            else f'TrainingArguments(eval_strategy="steps", eval_steps={2 * every})'
            f"  # now about every {plural(every, 'step')}; or a smaller eval_dataset"
            if trainer_words.arguments(facts.run.meta)
            else f"# validate half as often (now about every {plural(every, 'step')}), or on half of the data",
            fix_share=0.5,
            will_not_help="anything that makes training steps faster; the training loader's workers",
        )

    def _severity(self, facts: Facts, cost: int) -> Severity | None:
        severity = facts.grade(cost, self.limits)
        return "info" if severity is not None and facts.share(cost) < limit("validation_warn_share") else severity

    def _outside(self, facts: Facts) -> Finding | Abstained | None:
        """Evaluation that no switch to eval mode begins, and no fetch under no_grad."""
        mine = extra_forwards(facts)
        severity = self._severity(facts, mine.ns) if mine is not None else None
        if mine is None or severity is None or mine.samples < limit("min_samples"):
            return None
        top = mine.spots[0]
        if mine.may_train:
            return Abstained(
                self.id,
                self.slug,
                f"whether {facts.label(top)} evaluates a model or trains it: {facts.of_step(mine.ns)} is there, and "
                "backward is long enough to be of that too",
            )
        title, fix, will_not_help = _WITHIN_STEP if mine.within_step else _OUTSIDE
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause=main_cause(facts, mine.claims),
            claims=mine.claims,
            title=title,
            confidence=facts.confidence(
                samples=mine.samples,
                doubts=("a forward whose backward comes after the next fetch of a batch would look the same",)
                if not mine.within_step
                else (),
            ),
            evidence=(
                f"{facts.of_step(mine.ns)} is in modules that are called there: {mine.why}",
                *mine.evidence(facts),
            ),
            who=(facts.step_thread_name,),
            where=facts.where(top),
            why=f"{facts.label(top)} runs a model that {'little' if mine.within_step else 'no'} backward goes through",
            fix=f"{fix}\nwith torch.inference_mode(): ...",
            will_not_help=will_not_help,
        )
