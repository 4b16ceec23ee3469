"""TP701: a callback of the framework takes a notable part of the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings import framework, trainer_words
from trainperf.findings.facts import Affected, ms, plural
from trainperf.findings.model import Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainperf.findings.facts import Facts
    from trainperf.findings.model import Cell

# Callbacks of the frameworks' own, which nobody edits: what sets how often they work.
_OPTIONS = {
    "ModelCheckpoint": "ModelCheckpoint(every_n_train_steps=..., save_top_k=...)",
    "LearningRateMonitor": 'LearningRateMonitor(logging_interval="epoch")',
}


class Callback:
    id = "TP701"
    slug = "callback"
    limits = framework.CALLBACK_LIMITS
    needs: tuple[str, ...] = ("lightning_profiler",)

    def check(self, facts: Facts) -> Outcome:
        told = framework.told_callbacks(facts)
        if not told:
            return None
        top = told[0]
        whole_ns = sum(part.other_ns for part in told)
        claims = framework.claims_of_all(facts, [(part, part.other_ns) for part in told])
        severity = facts.grade(sum(claims.values()), self.limits)
        if severity is None:
            return None
        hook = top.hooks[0]
        others = [
            f"{p.name} {facts.share(p.other_ns):.1%}"
            for p in framework.callbacks(facts)[len(told) : len(told) + 2]
            if facts.share(p.other_ns) >= limit("show_share")
        ]
        second = max(top.hooks[1:], key=lambda h: h.other_ns, default=None)
        if second is not None and second.other_ns < limit("felt_share") * top.other_ns:
            second = None
        fix_share = top.other_ns / whole_ns
        cause = facts.main_cause(claims)
        affected = _affected(facts, told, claims)
        of_top = _affected(facts, told[:1], framework.claims_of(facts, top, top.other_ns)) if told[1:] else affected
        seldom = 2 * of_top.steps < facts.steps and 2 * of_top.steps < hook.count
        bar = "ProgressBar" in top.name
        # A thread that runs Python takes the GIL from training.
        in_python = sum(ns for (_, m), ns in claims.items() if m == "python") / sum(claims.values())
        computes = in_python >= limit("half_share")
        beside = "in a process" if computes else "in a thread, of copies"
        if bar:
            fix = f"{top.name}(refresh_rate=50)  # draw the bar less often"
        elif top.is_frameworks_own:
            fix = f"# {top.name} is the framework's own: let it work less often, by its options, or leave it out"
            fix += f"\n{_OPTIONS[top.name]}" if top.name in _OPTIONS else ""
        else:
            hugging_face = bool(trainer_words.arguments(facts.run.meta))
            fix = _less_often(f"{top.name}.{hook.name}", hook.name, beside, hugging_face=hugging_face)
            fix_share = hook.other_ns / whole_ns
            if seldom:
                fix = (
                    f"# in {top.name}.{hook.name}: what only few of its calls do: more rarely still, less, or {beside}"
                )
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause=cause,
            claims=claims,
            title=f"the {framework.named(told)} up the loop",
            affected=affected,
            confidence=facts.confidence(),
            evidence=(
                f"{facts.of_step(top.other_ns)} in {top.name}, all of its hooks",
                _told(hook),
                _told(second) if second is not None else "",
                *(f"{facts.of_step(p.other_ns)} in {p.name} ({p.place(facts)}): {_told(p.hooks[0])}" for p in told[1:]),
                f"other callbacks: {', '.join(others)}" if others else "",
            ),
            who=tuple(f"{p.name}.{p.hooks[0].name}" for p in told),
            where=top.place(facts),
            why=f"{top.name}.{hook.name} runs on the training thread"
            + (
                ", and few of its calls take long"
                if seldom
                else " once an epoch"
                if "epoch" in hook.name
                else " at every call"
            )
            + f" ({top.place(facts)})"
            + "".join(f"; so does {p.name}.{p.hooks[0].name}, {facts.share(p.other_ns):.0%}" for p in told[1:])
            + (f"; {second.other_ns / top.other_ns:.0%} of its time is in {second.name}" if second is not None else ""),
            fix=fix,
            fix_share=fix_share,
            will_not_help="more workers; where it stands in the list of callbacks"
            + ("; a thread: it is Python, and takes the GIL from training" if computes else ""),
        )


def _affected(facts: Facts, found: Sequence[framework.Part], claims: Mapping[Cell, int]) -> Affected:
    """Which steps have their costs: the few that others like them do not have, where so few of their calls can be all
    of it; or no more than nearly all of it has calls; else all."""
    ns = sum(part.other_ns for part in found)
    few = facts.affected_by_part(sum(claims.values()), cause=facts.main_cause(claims))
    longest = sum(hook.max_ns for part in found for hook in part.hooks if hook.other_ns)
    if few.steps * longest < limit("held_share") * ns:
        few = Affected(facts.steps, 1.0)
    calls = held = 0
    for hook in sorted((hook for part in found for hook in part.hooks), key=lambda hook: -hook.other_ns):
        calls, held = calls + hook.count, held + hook.other_ns
        if held >= limit("held_share") * ns:
            break
    return Affected(calls, held / ns) if calls < few.steps else few


def _less_often(place: str, hook: str, beside: str, *, hugging_face: bool) -> str:
    """`beside`: where else it can be done."""
    if "epoch" in hook:
        count, what = "round(state.epoch)" if hugging_face else "trainer.current_epoch", "epochs"
    elif "batch" in hook or hook in ("on_step_begin", "on_step_end", "on_substep_end"):
        count, what = "state.global_step" if hugging_face else "batch_idx", "batches"
    else:  # it is not given a number, or called for a reason of its own
        return f"# in {place}: do less, or do it {beside}"
    step = 50 if what == "batches" else 5
    return f"# in {place}: do it every {step} {what}, or {beside}\nif {count} % {step}: return"


def _told(hook: framework.Hook) -> str:
    each = ms(hook.other_ns / max(1, hook.count))
    return f"{hook.name}: {plural(hook.count, 'call')}, {each} each, the longest {ms(hook.max_ns)}"
