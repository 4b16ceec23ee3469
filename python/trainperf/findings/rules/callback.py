"""TP701: a callback of the framework, or a hook of the LightningModule, takes a notable part of the loop."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trainperf.findings import framework, trainer_words
from trainperf.findings.facts import Affected, ms, plural
from trainperf.findings.model import Outcome
from trainperf.findings.thresholds import limit
from trainperf.findings.waiting import ForOthers, for_others

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainperf.findings.facts import Facts
    from trainperf.findings.model import Cell
    from trainperf.runfile import Frame

# Callbacks of the frameworks' own, which nobody edits: what sets how often they work.
_OPTIONS = {
    "ModelCheckpoint": "ModelCheckpoint(every_n_train_steps=..., save_top_k=...)",
    "LearningRateMonitor": 'LearningRateMonitor(logging_interval="epoch")',
}

# A module's hooks are where training itself may be: a clipping, an average of the weights, what shapes the batch.
_NEEDED = (
    "# if every step needs it: few operations on all tensors (torch._foreach_*); work on the batch in the DataLoader"
)


class Callback:
    id = "TP701"
    slug = "callback"
    limits = framework.CALLBACK_LIMITS
    needs: tuple[str, ...] = ("lightning_profiler",)

    def check(self, facts: Facts) -> Outcome:
        told = framework.told_hook_holders(facts)
        if not told:
            return None
        top = told[0]
        whole_ns = sum(part.other_ns for part in told)
        claims = framework.claims_of_all(facts, [(part, part.other_ns) for part in told])
        severity = facts.grade(sum(claims.values()), self.limits)
        if severity is None:
            return None
        hook = top.hooks[0]
        modules = any(p.is_module for p in framework.hook_holders(facts))
        others = [
            f"{p.name} {facts.share(p.other_ns):.1%}"
            for p in framework.hook_holders(facts)[len(told) : len(told) + 2]
            if facts.share(p.other_ns) >= limit("show_share")
        ]
        more = _more_hooks(facts, top)
        fix_share = top.other_ns / whole_ns
        cause = facts.main_cause(claims)
        affected = _affected(facts, told, claims)
        of_top = _affected(facts, told[:1], framework.claims_of(facts, top, top.other_ns)) if told[1:] else affected
        seldom = 2 * of_top.steps < facts.steps and 2 * of_top.steps < hook.count
        bar, method = "ProgressBar" in top.name, framework.method_of_users(facts, top)
        # A thread that runs Python takes the GIL from training.
        in_python = sum(ns for (_, m), ns in claims.items() if m == "python") / sum(claims.values())
        computes = in_python >= limit("half_share")
        beside = "in a process" if computes else "in a thread, of copies"
        if bar:
            fix = f"{top.name}(refresh_rate=50)  # draw the bar less often"
        elif method is not None:
            fix = f"# do less there, more rarely, or {beside}"
        elif top.is_frameworks_own:
            own = f"{top.name} is" if top.of_framework else f"what {top.name} inherits is"
            fix = f"# {own} the framework's own: let it work less often, by its options, or leave it out"
            option = _OPTIONS.get("ModelCheckpoint" if top.saves else top.name)
            fix += f"\n{option}" if option else ""
        else:
            hugging_face = bool(trainer_words.arguments(facts.run.meta))
            fix, saved = _less_often(top, hook, beside, hugging_face=hugging_face)
            fix_share = saved * hook.other_ns / whole_ns
            if seldom:
                fix = f"# what only few of its calls do: more rarely still, less, or {beside}"
                fix_share = hook.other_ns / whole_ns
        waits = None if bar or (top.is_frameworks_own and method is None) else _waits(facts, top, claims)
        if waits is not None:
            fix, fix_share = waits.fix, waits.share * hook.other_ns / whole_ns
        as_well = "so does {}, {:.0%}" if waits is None else "{} takes {:.0%}"
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause=cause,
            claims=claims,
            title=f"the {_named(facts, told)} up the loop",
            affected=affected,
            confidence=facts.confidence(),
            evidence=(
                f"{facts.of_step(top.other_ns)} in {top.name}, all of its hooks"
                + (" in the training loop" if top.is_module else ""),
                _told(hook),
                *(_told(h, top.place(facts, h) if top.is_module else "") for h in more),
                *(line for p in told[1:] for line in _of_another(facts, p)),
                f"{'others' if modules else 'other callbacks'}: {', '.join(others)}" if others else "",
            ),
            who=(*(name for p in told for name in _names(facts, p)), waits.who if waits is not None else ""),
            where=top.place(facts) if method is None else facts.where(method),
            why=f"{top.name}.{hook.name} {waits.words if waits is not None else 'runs on the training thread'}"
            + (
                ", and few of its calls take long"
                if seldom
                else " once an epoch"
                if "epoch" in hook.name
                else " at every call"
                if hook.alike
                else ""
            )
            + (f" ({top.place(facts)})" if method is None else f": most of it in {facts.label(method)}")
            + (f", while {waits.meanwhile}" if waits is not None and waits.meanwhile else "")
            + "".join(
                f"; {as_well.format(f'{p.name}.{p.hooks[0].name}', facts.share(p.hooks[0].other_ns))}" for p in told[1:]
            )
            + "".join(f"; {h.other_ns / top.other_ns:.0%} of its time is in {h.name}" for h in more),
            fix=fix,
            fix_share=fix_share,
            will_not_help=waits.will_not_help
            if waits is not None
            else "more workers; "
            + ("a callback that does the same" if top.is_module else "where it stands in the list of callbacks")
            + ("; a thread: it is Python, and takes the GIL from training" if computes else ""),
        )


def _waits(facts: Facts, part: framework.Part, claims: Mapping[Cell, int]) -> ForOthers | None:
    """Where most of its costliest hook's time is a wait for another thread: that is what to look at."""
    name, hooks, phases = part.hooks[0].name, framework.Hooks(facts), sorted({phase for phase, _ in claims})

    def in_hook(stack: Sequence[Frame]) -> bool:
        return any(f.function.rpartition(".")[2] == name and hooks.owner(f) == part for f in stack)

    seen = [d for d in facts.samples(phases=phases) if in_hook(facts.run.stack(d.stack))]
    return for_others(facts, seen, phases) if sum(d.count for d in seen) >= limit("min_samples") else None


def _more_hooks(facts: Facts, part: framework.Part) -> list[framework.Hook]:
    """Beside the costliest: of the module those that are worth a warning, of a callback the one that it has notably."""
    if part.is_module:
        return [hook for hook in part.hooks[1:] if facts.grade(hook.other_ns, Callback.limits) is not None]
    return [hook for hook in part.hooks[1:2] if hook.other_ns >= limit("felt_share") * part.other_ns]


def _of_another(facts: Facts, part: framework.Part) -> list[str]:
    more = _more_hooks(facts, part) if part.is_module else []
    first = f"{facts.of_step(part.other_ns)} in {part.name} ({part.place(facts)}): {_told(part.hooks[0])}"
    return [first, *(_told(hook, part.place(facts, hook)) for hook in more)]


def _names(facts: Facts, part: framework.Part) -> list[str]:
    """A callback is called by one of its hooks, the module by each that is told."""
    more = _more_hooks(facts, part) if part.is_module else []
    return [f"{part.name}.{hook.name}" for hook in (part.hooks[0], *more)]


def _named(facts: Facts, told: Sequence[framework.Part]) -> str:
    if not any(part.is_module for part in told):
        return framework.named(told)
    names = [name for part in told for name in _names(facts, part)]
    return framework.hold("module's hook" if all(part.is_module for part in told) else "hook", names)


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


def _less_often(part: framework.Part, hook: framework.Hook, beside: str, *, hugging_face: bool) -> tuple[str, float]:
    """And the share of the hook's calls that are then left out. `beside`: where else it can be done."""
    less = f"# do less there, or do it {beside}"
    if "epoch" in hook.name:
        own = "self.current_epoch" if part.is_module else "trainer.current_epoch"
        count, what = "round(state.epoch)" if hugging_face else own, "epochs"
    elif "batch" in hook.name or hook.name in ("on_step_begin", "on_step_end", "on_substep_end"):
        count, what = ("state.global_step", "steps") if hugging_face else ("batch_idx", "batches")
    elif part.is_module:
        count, what = "self.global_step", "steps"
    else:  # it is not given a number, or called for a reason of its own
        return less, 1.0
    step = 5 if what == "epochs" else 50
    left = 1 - math.ceil(hook.count / step) / max(1, hook.count)  # the first call is of number 0
    if left < limit("half_share"):
        return less, 1.0
    if not part.is_module:
        return f"# do it every {step} {what}, or {beside}\nif {count} % {step}: return", left
    needed = f"\n{_NEEDED}" if what != "epochs" else ""
    fix = f"# compute metrics and plots every {step} {what}\nif {count} % {step} == 0: ...{needed}"
    return fix, left


def _told(hook: framework.Hook, place: str = "") -> str:
    each = ms(hook.other_ns / max(1, hook.count))
    at = f" ({place})" if place else ""
    return f"{hook.name}{at}: {plural(hook.count, 'call')}, {each} each, the longest {ms(hook.max_ns)}"
