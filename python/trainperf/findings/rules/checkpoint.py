"""TP304: the loop stands still while a checkpoint is written."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from statistics import median_low
from typing import TYPE_CHECKING

from trainperf.findings import frames, framework, saving, source_marks, trainer_words
from trainperf.findings.facts import ms, plural, size
from trainperf.findings.model import Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainperf.findings.facts import Facts, Spot


class Checkpoint:
    id = "TP304"
    slug = "checkpoint"
    limits = Limits(limit("rare_warn_share"), limit("critical_share"))
    needs: tuple[str, ...] = ("hook_checkpoint",)

    def check(self, facts: Facts) -> Outcome:
        claims = facts.cells("checkpoint")
        in_save = sum(claims.values())
        around = framework.around_saves(facts)
        if around is not None:
            claims |= framework.claims_of(facts, around, around.other_ns)
        chores = sum(claims.values()) - in_save
        beside = saving.beside_saves(facts)
        for cell, ns in beside.claims.items():
            claims[cell] = min(facts.matrix[cell], claims.get(cell, 0) + ns)
        cost = sum(claims.values())
        severity = facts.grade(cost, self.limits)
        if severity is None:
            return None
        total = facts.run.span_total("checkpoint")
        affected = facts.affected("checkpoint")
        # Of a trainer's save that is not bracketed as a whole each file is one: those of one step are one save.
        saves = min(total.count, total.steps) or affected.steps
        files = round(total.count / saves)
        known = total.value > 0 and total.ns > 0
        rate = total.value / (total.ns / 1e9) if known else 0.0
        spots = facts.spots(facts.samples(phases=["checkpoint"]))
        top = spots[0] if spots else None
        own = saving.own_work(facts)
        asleep = sum(ns for (_, m), ns in claims.items() if m == "blocked")
        saver = saving.saver(top.frames if top is not None else ())
        called = _called(own, cost)
        mostly_own = bool(called) and own.ns >= limit("half_share") * cost
        storage = (asleep - own.blocked_ns) / cost
        if mostly_own:
            advice = _for_own_work(facts, called, own.call, saver)
        elif beside.ns >= limit("half_share") * cost:
            fix, fix_share = _fix(facts, top, saver, _every(facts, saves), whole=True)
            first = beside.spots[0]
            advice = _Advice(
                spot=first,
                why=f"{facts.label_with_caller(first)} is {first.share * beside.ns / cost:.0%} of it, "
                f"{saver} {in_save / cost:.0%}",
                fix=fix,
                fix_share=fix_share,
                will_not_help=f"a larger batch or more workers; {saver} alone in a thread",
            )
        else:
            advice = _for_writing(facts, top, saver, _every(facts, saves), storage)
        of_log = advice.spot is not None and source_marks.is_of_log(advice.spot.frame)
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="checkpoint",
            claims=claims,
            title=f"the loop waits for {'its log' if of_log else 'checkpoints'} to be written",
            affected=affected,
            confidence=facts.confidence(),
            evidence=(
                f"{plural(saves, 'save')} in {facts.steps:,} steps, {ms(cost / saves)} each"
                + (f", of {files} calls of {saver}" if files > 1 else ""),
                f"{chores / cost:.0%} of it is what {around.name} does beside, such as removing the old file"
                if around is not None and chores >= limit("show_share") * cost
                else "",
                f"{beside.ns / cost:.0%} of it is beside {saver}: {facts.label(beside.spots[0])} writes the file"
                if beside.spots
                else "",
                *(f"{share:.0%} of it is no writing: {facts.label_with_caller(s)}" for s, share in called),
                f"{size(total.value / saves)} each" + ("" if mostly_own else f", {size(rate)}/s")
                if known
                else "how many bytes is not known",
                "" if mostly_own else _of_storage(storage, own.ns / cost),
            ),
            who=(facts.step_thread_name,),
            where=facts.where(advice.spot),
            why=advice.why,
            fix="# write it every N steps, or append the new rows instead of rewriting all of it"
            if of_log
            else advice.fix,
            fix_share=1.0 if of_log else advice.fix_share,
            will_not_help=advice.will_not_help,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Advice:
    """What is told of the one thing that most of the saves' time goes to."""

    spot: Spot | None
    why: str
    fix: str
    fix_share: float
    will_not_help: str


def _for_own_work(facts: Facts, called: Sequence[tuple[Spot, float]], call: str, saver: str) -> _Advice:
    """Of saves that mostly run what the user's code does in them, and no writing; `call`: the system call that it
    waits in, "" for none."""
    (first, share), *others = called
    does = f"waits ({call})" if call else "is on the CPU"
    return _Advice(
        spot=first,
        why=f"the save calls {facts.label_with_caller(first)}, which {does}: {share:.0%} of it"
        + "".join(f"; and {facts.label(s)}: {share:.0%}" for s, share in others),
        fix=f"# in {frames.label(first.frame, facts.base)}: do less, or do it beside training; or save less often",
        fix_share=share,
        will_not_help=f"a faster disk, or {saver} in a thread: most of it is no writing",
    )


def _for_writing(facts: Facts, top: Spot | None, saver: str, every: int, storage: float) -> _Advice:
    """Of saves that mostly pickle and write; `storage`: the share of it that waits for that."""
    fix, fix_share = _fix(facts, top, saver, every)
    called_by = f", called by {frames.label(top.frame, facts.base)}" if top is not None else ""
    faster_disk = f"; a faster disk: {storage:.0%} of it waits for that" if storage < limit("felt_share") else ""
    return _Advice(
        spot=top,
        why=f"{saver} runs on the training thread{called_by}",
        fix=fix,
        fix_share=fix_share,
        will_not_help=f"a larger batch or more workers{faster_disk}",
    )


def _called(own: saving.OwnWork, cost: int) -> list[tuple[Spot, float]]:
    """What of the user's a save calls beside writing, where that is felt, with shares of the save: two at most."""
    if own.ns < limit("felt_share") * cost:
        return []
    called = [(s, s.share * own.ns / cost) for s in own.spots]
    return [(s, share) for s, share in called if s is own.spots[0] or share >= limit("felt_share")][:2]


def _of_storage(blocked: float, own: float) -> str:
    rest = ", the rest on the CPU (pickling, copying)" if blocked + own < 0.995 else ""
    return f"{blocked:.0%} of it waiting for storage{rest}"


def _fix(facts: Facts, top: Spot | None, saver: str, every: int, *, whole: bool = False) -> tuple[str, float]:
    """And the share of the saves that it saves. `whole`: what comes beside `saver` is to go with it."""
    now, rarely = f"now every {plural(every, 'step')}", max(100, 10 * every)
    callback = framework.callback_of(facts, top)
    if not callback and framework.trainer(facts):
        fix = f"ModelCheckpoint(every_n_train_steps={rarely})  # {now}; or save_weights_only=True"
        return fix, 1 - every / rarely
    if not callback and trainer_words.arguments(facts.run.meta):
        return f"TrainingArguments(save_steps={rarely})  # {now}; or save_only_model=True", 1 - every / rarely
    within = f"in {callback}: " if callback else ""
    # Of a training of Lightning's a state_dict alone would lack what its own checkpoint has.
    if framework.trainer(facts) and top is not None and saving.saves_by_trainer(top.frames):
        return f"# {within}call trainer.save_checkpoint less often ({now})", 1.0
    if saver not in (saving.TORCH_SAVE, "save_file"):  # which may write the optimizer's and the sampler's state as well
        return f"# {within}call {saver} less often ({now})", 1.0
    if whole:
        return (
            f"# {within}save less often ({now}), or all of it in a thread: of a copied state, one at a time",
            1.0,
        )
    return (
        f"# {within}save less often ({now}), or beside training:\n"
        "state = {k: v.cpu().clone() for k, v in model.state_dict().items()}\n"
        'threading.Thread(target=torch.save, args=(state, "last.pt")).start()',
        1.0,
    )


def _every(facts: Facts, saves: int) -> int:
    """Steps from one save to the next, mostly; where the saves are too many for a span each, or come in pairs, the
    mean."""
    mean = facts.steps / saves
    spans = facts.run.spans("checkpoint")
    between = [b - a for a, b in pairwise(sorted({span.step for span in spans if span.step >= 0}))]
    mostly = (
        median_low(between) if len(between) > 1 and len(spans) == facts.run.span_total("checkpoint").count else mean
    )
    return max(1, round(mostly if mean / 2 <= mostly <= 2 * mean else mean))
