"""TP306: validation is a large part of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings import frames, framework, loaders, trainer_words, validating
from trainperf.findings.cpu_use import usable_cpus
from trainperf.findings.facts import ms, plural
from trainperf.findings.fetch_advice import once_free
from trainperf.findings.model import Limits, Outcome
from trainperf.findings.rules.trainer import validation_workers
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.model import Cell, Severity

# Hooks that the trainer's own validation calls.
_IN_VALIDATION = ("on_evaluate", "on_predict", "on_prediction", "on_validation", "on_sanity_check")
_WORKERS = "DataLoader(..., num_workers=2, persistent_workers=True)"
_NO_LOADER = "it reads no DataLoader: a rollout, or pseudo-labels, look the same"


class Validation:
    id = "TP306"
    slug = "validation"
    limits = Limits(limit("validation_info_share"), None)
    needs: tuple[str, ...] = ("hook_eval_mode",)

    def check(self, facts: Facts) -> Outcome:
        work = facts.cells("validation")
        own = validating.own_work(facts)
        whole = {cell: ns for cell, ns in facts.matrix.items() if cell[0] == "validation" and ns > 0}
        whole_ns = sum(whole.values())
        waits = sum(v.fetches.validation_wall_ns for v in facts.run.loaders.values())
        waits_mostly = whole_ns <= 2 * waits <= 2 * whole_ns
        for_workers = own is None and waits_mostly and _workers_help(facts, waits)
        avoidable = waits - _ready_ns(facts, validating=True) if for_workers else 0
        seldom = facts.run.span_total("validation").steps < limit("held_share") * facts.steps
        severity = self._severity(facts, sum(work.values()), avoidable, asked=own is None and seldom)
        if severity is None:
            return None
        claims = work | validating.its_waits(facts)
        cost = sum(claims.values())
        started = sum(work.values()) - sum(facts.ledger.cells("validation").values())
        total = facts.run.span_total("validation")
        affected = facts.affected("validation")
        before = sum(span.step < 0 for span in facts.run.spans("validation"))  # Lightning's sanity check
        times = max(0, total.count - before) or affected.steps
        spots = [own.spot] if own is not None else facts.spots(facts.samples(phases=["validation"]))
        top = spots[0] if spots else None
        if severity == "info" and facts.share(cost) >= limit("validation_warn_share"):
            severity = "warning"
        for_data = validating.data_made_in(facts) if waits_mostly else None
        made_in = facts.label_with_caller(for_data) if for_data is not None else ""
        every = max(1, round(facts.steps / times))
        callback = framework.callback_of(facts, top)
        by_itself = "" if callback.rpartition(".")[2].startswith(_IN_VALIDATION) else callback
        # In a loop of the user's own, without a loader: a rollout or pseudo-labels look like it.
        fetches = sum(v.fetches.validation_count for v in facts.run.loaders.values())
        doubts = _unbracketed(facts)
        if not fetches and not framework.trainer(facts) and not trainer_words.arguments(facts.run.meta):
            title, fix = "what runs in eval() is a large part of the run", _unless_it_makes_data(every)
            if own is not None:
                fix = f"# in {frames.label(own.spot.frame, facts.base)}: do less\n{fix}"
            counted, doubts = plural(times, "stretch", "es"), (_NO_LOADER, *doubts)
            does = f"{validating.stretch(facts) or 'the model'} runs in eval()"
        else:
            title, does = "validation is a large part of the run", "validation runs"
            if for_workers:
                title = "validation waits for its data"
            counted = plural(times, "validation")
            fix = _less_of_it(facts, by_itself, every)
            if own is not None:
                fix = f"# in {frames.label(own.spot.frame, facts.base)}: do less; or all of it less often:\n"
                fix += _less_often(facts, by_itself, every)
            elif for_workers:
                fix = f"{_WORKERS}  # of the validation's loader; or less of it:\n{fix}"
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="validation",
            claims=claims,
            by_device=False,
            title=title,
            affected=affected,
            confidence=facts.confidence(samples=own.spot.samples if own is not None else None, doubts=doubts),
            evidence=(
                f"{counted} in {facts.steps:,} steps, {ms(whole_ns / times)} each"
                + _elsewhere({cell: ns - claims.get(cell, 0) for cell, ns in whole.items()}, whole_ns, times),
                f"{ms(started / times)} of each is told as {validation_workers.id}" if started else "",
                f"{waits / whole_ns:.0%} of it waits for validation data" if waits and waits <= whole_ns else "",
            ),
            who=(facts.step_thread_name,),
            where=facts.where(top),
            why=f"{does} {_often(every, times / facts.steps)} and takes {ms(whole_ns / times)}"
            + (f", {own.share:.0%} of it in {facts.label_with_caller(own.spot)}" if own is not None else "")
            + (f", most of it waiting for data, made in {made_in}" if made_in else ""),
            fix=fix,
            fix_share=_saves(facts, every, own.share if own is not None else avoidable / max(1, cost)),
            will_not_help="anything that makes training steps faster; the training loader's workers"
            + ("; a smaller model or a larger batch" if own is not None else ""),
        )

    def _severity(self, facts: Facts, work_ns: int, avoidable_ns: int, *, asked: bool) -> Severity | None:
        """Of validation as such, that was asked for, it is an info up to where less of it is the largest gain; waits
        that workers would take off it, what is no validating, and what is done in each step, are trouble of any kind's
        size."""
        severity = (facts.grade_of_asked_work if asked else facts.grade)(work_ns, self.limits)
        if severity in (None, "info") and avoidable_ns:
            severity = facts.grade(min(avoidable_ns, work_ns), Limits(limit("warn_share"), None)) or severity
        return severity


def _saves(facts: Facts, every: int, by_other_means: float) -> float:
    """Of its time, at most: half as often, or nearly never where it is in each step; or what else is advised."""
    by_trainer = framework.trainer(facts) or trainer_words.arguments(facts.run.meta)
    return max(0.5 if every > 1 or by_trainer else 1.0, min(1.0, by_other_means))


def _unbracketed(facts: Facts) -> tuple[str, ...]:
    """What a trainer does before eval() and after train(), such as to start workers, is then no part of it."""
    if "lightning_validation" not in facts.run.tiers:
        return ()
    without = facts.off("lightning_validation")
    return (
        (f"it is counted from eval() to train(), as the trainer's loop is not bracketed: {without}",) if without else ()
    )


def _elsewhere(left: dict[Cell, int], whole_ns: int, times: int) -> str:
    """What of validations other causes have, where that is notable."""
    ns = sum(left.values())
    if ns < limit("felt_share") * whole_ns:
        return ""
    causes = [mechanism for (_, mechanism), n in left.items() if n >= limit("warn_share") * ns]
    return f": {ms(ns / times)} of it counts as {' and '.join(causes)}"


def _workers_help(facts: Facts, waits_ns: int) -> bool:
    """Not where its loaders have some, nor where no CPU is free for them: of workers that compute, beside torch's
    threads. They must save more than it takes to get their batches, of a trainer that has one option for all loaders
    training's too."""
    those = facts.run.loaders.values()
    if any(loaders.num_workers(v) for v in those if v.fetches.validation_count):
        return False
    asleep = facts.matrix["validation", "blocked"] >= limit("half_share") * waits_ns
    usable = usable_cpus(facts.run)
    if not asleep and (once_free(facts) or 0 < usable <= facts.torch_threads):
        return False
    taken_ns = _ready_ns(facts, validating=True)
    if trainer_words.arguments(facts.run.meta):
        taken_ns += _ready_ns(facts, validating=False)
    return limit("half_share") * waits_ns > taken_ns


def _ready_ns(facts: Facts, *, validating: bool) -> int:
    """What it would take to get all those batches from workers that have made them."""
    those = facts.run.loaders.values()
    if validating:
        count = sum(v.fetches.validation_count for v in those)
    else:
        count = sum(v.fetches.count for v in those if not loaders.only_validates(v))
    return int(count * 1e6 * limit("ready_batch_ms"))


def _less_of_it(facts: Facts, callback: str, every: int) -> str:
    """`callback`: of the user's, that validates by itself; "" for none."""
    rarely = _less_often(facts, callback, every)
    if not callback and framework.trainer(facts):
        return f"{rarely}; or limit_val_batches=0.5"
    if not callback and trainer_words.arguments(facts.run.meta):
        return f"{rarely}; or a smaller eval_dataset"
    return f"{rarely}, or on half of the data"


def _often(every: int, times_a_step: float = 0.0) -> str:
    if times_a_step >= 1.5:
        return f"about {times_a_step:.0f} times in each step"
    return "in each step" if every == 1 else f"about every {every:,} steps"


def _unless_it_makes_data(every: int) -> str:
    if every == 1:
        return "# if its result is trained on: of fewer samples; if it validates: every N steps"
    return (
        f"# if it validates: half as often (now {_often(every)}); if it makes data, such as a rollout: in larger "
        "batches, of several environments at once"
    )


def _less_often(facts: Facts, callback: str, every: int) -> str:
    now = f"now {_often(every)}"
    if callback:
        return f"# in {callback}: validate {'every N steps' if every == 1 else 'half as often'} ({now})"
    if framework.trainer(facts):
        interval = framework.trainer(facts).get("val_check_interval")  # 1.0: once an epoch
        if isinstance(interval, int) and not isinstance(interval, bool):
            every, now = interval, f"now {interval}"
        return f"Trainer(val_check_interval={2 * every}, check_val_every_n_epoch=None)  # {now}"
    if trainer_words.arguments(facts.run.meta):
        return f'TrainingArguments(eval_strategy="steps", eval_steps={2 * every})  # {now}'
    return f"# validate {'every N steps' if every == 1 else 'half as often'} ({now})"
