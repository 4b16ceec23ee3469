"""TP306: validation is a large part of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings import framework, trainer_words
from trainperf.findings.facts import ms, plural
from trainperf.findings.model import Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts


class Validation:
    id = "TP306"
    slug = "validation"
    limits = Limits(limit("validation_info_share"), None)
    needs: tuple[str, ...] = ("hook_eval_mode",)

    def check(self, facts: Facts) -> Outcome:
        claims = facts.cells("validation")
        cost = sum(claims.values())
        severity = facts.grade_of_asked_work(cost, self.limits)
        if severity is None:
            return None
        total = facts.run.span_total("validation")
        affected = facts.affected("validation")
        before = sum(span.step < 0 for span in facts.run.spans("validation"))  # Lightning's sanity check
        times = max(0, total.count - before) or affected.steps
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
            fix=_less_of_it(facts, framework.callback_of(facts, top), every),
            fix_share=0.5,
            will_not_help="anything that makes training steps faster; the training loader's workers",
        )


def _less_of_it(facts: Facts, callback: str, every: int) -> str:
    """`callback`: of the user's, that validates by itself; "" for none."""
    now = f"now about every {plural(every, 'step')}"
    if callback:
        return f"# in {callback}: validate half as often ({now}), or on half of the data"
    if framework.trainer(facts):
        steps = f"val_check_interval={2 * every}, check_val_every_n_epoch=None"
        return f"Trainer({steps})  # {now}; or limit_val_batches=0.5"
    if trainer_words.arguments(facts.run.meta):
        steps = f'eval_strategy="steps", eval_steps={2 * every}'
        return f"TrainingArguments({steps})  # {now}; or a smaller eval_dataset"
    return f"# validate half as often ({now}), or on half of the data"
