"""TP310: native code of the loop's own, beside the training itself, takes much of the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainperf.findings import file_work
from trainperf.findings.facts import Affected, ms, plural
from trainperf.findings.frames import function_of, in_step_hook, saves
from trainperf.findings.framework import trainer
from trainperf.findings.model import Abstained, Finding, Limits, Outcome, Severity
from trainperf.findings.own_code import (
    around_the_model,
    arrays_in_model,
    beside_the_model,
    forward_without_layers,
    may_be_of_tensors,
    native_cells,
    of_library,
    own_code,
    share_in_hooks,
    too_few_samples,
    works_on_weights,
)
from trainperf.findings.text import OF_WEIGHTS, SELDOM
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.frames import FrameLike
    from trainperf.findings.own_code import OwnCode


# Title, fix, what will not help.
_SAVES = (
    "the loop saves files",
    "# save less often, uncompressed where it compresses, or from a thread, of a copy",
    "a faster disk: it is on the CPU; more DataLoader workers",
)
_FILES = (
    "the loop works on files",
    "# less often, in larger pieces, or from a thread: while the kernel works, Python runs on",
    "a faster disk: it is the kernel on the CPU; more DataLoader workers",
)
_BETWEEN_PHASES = (
    "the loop computes outside of forward, backward and optimizer",
    f"{SELDOM}\n# what each step needs: of all parameters at once (clip_grad_norm_, torch._foreach_lerp_)",
    "a faster model or more DataLoader workers: it is neither training nor data",
)
# What is done in few steps, such as once an epoch, is rare already.
_NOW_AND_THEN = (
    _BETWEEN_PHASES[0],
    "# do it faster, once before the loop, or beside training: in a thread or another process",
    _BETWEEN_PHASES[2],
)
_BEFORE_THE_MODEL = (
    "the loop computes before it calls the model",
    "# what is no part of the batch: every N steps, or in fewer operations\n"
    "# what makes the batch: in Dataset.__getitem__ or collate_fn, with DataLoader(..., num_workers=...), or once "
    "beforehand, or on the GPU",
    "a faster model",
)
_AFTER_THE_MODEL = (
    "the loop computes between the model and the backward",
    f"{SELDOM}\n# what each step needs, such as a part of the loss: in fewer operations, in tensors",
    "a faster model; more DataLoader workers: it is of what the model has computed",
)
_BETWEEN_CALLS = (
    "the loop computes between its calls of the model",
    _AFTER_THE_MODEL[1],
    "a faster model; more DataLoader workers, where it is of what the model has computed",
)
_AROUND_THE_MODEL = (
    "the loop computes before it calls the model, and after",
    f"{SELDOM}\n# what makes the batch: in Dataset.__getitem__ or collate_fn, with DataLoader(..., num_workers=...)",
    "a faster model",
)
_IN_HOOKS = (
    "the loop computes in forward hooks",
    "# in the hook: only every N calls; or take it off once it has seen enough:\nhandle.remove()",
    "more DataLoader workers",
)
_IN_BACKWARD_HOOKS = ("the loop computes in hooks of the backward", *_IN_HOOKS[1:])
_IN_STEP_HOOKS = ("the loop computes in hooks of the optimizer's step", *_IN_HOOKS[1:])
_IN_CLOSURE = (
    "the loop computes within the optimizer's step, beside forward and backward",
    f"{SELDOM}\n# what each step needs: once, outside of the closure that the step calls",
    "a faster model or more DataLoader workers: it is neither training nor data",
)
_IN_LIGHTNINGS_CLOSURE = (_IN_CLOSURE[0], _BETWEEN_PHASES[1], _IN_CLOSURE[2])
_IN_THE_MODEL = (
    "the model or its loss computes in NumPy or its like",
    "# by operations of PyTorch; or, where it needs the batch alone, in Dataset.__getitem__, by workers or "
    "once beforehand",
    "a faster GPU: it runs on the CPU, in each call of the model",
)
_MAY_BE_A_LOSS = (
    "the loop computes outside of any module",
    "# a loss, a model, an average of the weights: of all at once, in fewer operations\n"
    f"{SELDOM}\n# the batch: in Dataset.__getitem__, by workers",
    "a faster model",
)
_LOSS_IN_PIECES = (
    "the loop computes outside of any module, in operations that make backward long",
    "# compute it of the whole batch at once: no Python loop over samples, classes or pairs\n"
    "# where no gradient is needed: with torch.no_grad(), every N steps",
    "a faster model; DataLoader workers",
)


_AFTER_UPDATE, _AFTER_CALL = "after the update", "after the model is called"

# Lightning's hooks that are given a batch, and return it.
_OF_A_BATCH = {"on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer"}


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
            told = [f for f in (self._beside_the_model(facts), self._in_the_model(facts)) if f is not None]
            return max(told, key=lambda f: f.cost_ns) if told else self._blind(facts, mine)
        # Without torch's optimizers, the loop's own update of the weights is here as well.
        if not facts.run.phase_ns("optimizer"):
            severity = "info"
        python = mine.share(mechanism="python")
        doubt = ""
        hooks = share_in_hooks(facts, mine) > limit("most_share")
        saving, asked = saves(top.frames), of_library(facts, mine, top)
        affected = _affected(facts, mine)
        took = f"{facts.of_step(mine.ns)} is "
        if affected.steps < facts.steps:
            each = ms(mine.ns * affected.share / affected.steps)
            took = f"{affected.steps:,} of {facts.steps:,} steps, {each} each: "
        advice, doing, does = _BETWEEN_PHASES, "between the phases of training", "computes"
        on_files = "" if saving or asked is not None else file_work.file_call(facts, mine)
        if on_files:
            advice, doing, does, doubt = _FILES, _of_kernel(on_files), "works on files", file_work.DOUBT
        elif saving:
            advice, doing, does = _SAVES, "that writes files", "saves"
        elif asked is not None:
            advice, doing = (f"the loop computes {asked[0]}", asked[1], _BETWEEN_PHASES[2]), f"of {asked[0]}"
            does = f"computes {asked[0]}"
        elif hooks:
            advice, doing = _IN_HOOKS, "of hooks that modules call"
            doubt = "a hook that changes what its module returns is a part of the model"
        elif mine.share(phase="backward") > limit("most_share"):
            advice, doing = _IN_BACKWARD_HOOKS, "of hooks that autograd calls with a gradient"
            doubt = "a hook that changes the gradient is a part of the training"
        elif mine.share(phase="optimizer") > limit("most_share"):
            advice, doing = _IN_CLOSURE, "in the closure that the optimizer's step calls"
            if trainer(facts):
                advice, doing = _IN_LIGHTNINGS_CLOSURE, "in what Lightning calls within the optimizer's step: hooks"
            if in_step_hook(top.frames):
                advice, doing = _IN_STEP_HOOKS, "of hooks that the optimizer calls"
                doubt = "a hook that changes the gradients is a part of the training"
        elif mine.share(phase="forward") > limit("most_share") or _works_on_a_batch(top.frames):
            advice, doing = _BEFORE_THE_MODEL, "before the model is called"
            at = around_the_model(facts, [d for d in mine.details if d.phase == "forward"])
            notably = 1 - limit("held_share")
            if at.after >= limit("held_share"):
                advice, doing = _AFTER_THE_MODEL, "between the model and the backward"
            elif at.after + at.updated >= limit("held_share"):
                advice, doing = _BETWEEN_PHASES, _AFTER_UPDATE if at.updated >= limit("held_share") else _AFTER_CALL
            elif at.between > limit("most_share"):
                advice, doing = _BETWEEN_CALLS, "between calls of the model"
            elif min(at.before, at.after + at.updated) > notably:
                advice = _AROUND_THE_MODEL
                doing = f"around the model, {at.after:.0%} of it between that and the backward"
                if at.updated > notably:
                    doing = f"around the model, {at.after + at.updated:.0%} of it after that"
            if may_be_of_tensors(facts, mine, top):
                doubt = "what it computes on lines of its own may be of tensors, and a part of the loss"
        elif affected.rare(facts.steps):
            advice = _NOW_AND_THEN
        elif works_on_weights(facts, mine, top):
            advice = (_BETWEEN_PHASES[0], f"{OF_WEIGHTS}\n{_BETWEEN_PHASES[1]}", _BETWEEN_PHASES[2])
        both = python >= limit("warn_share")
        what = f"native code {'' if on_files else '(NumPy, pandas, tensors) '}{doing}"
        if both and not on_files:
            what = f"code {doing}, most of it native (NumPy, pandas, tensors)"
        return self._finding(
            facts,
            mine,
            severity,
            advice,
            evidence=(
                f"{took}{what}",
                f"{python:.0%} of it is Python in the same functions" if both else "",
                *mine.evidence(facts),
            ),
            does=does,
            doubts=(doubt,) if doubt else (),
        )

    def _beside_the_model(self, facts: Facts) -> Finding | None:
        """An info, as a loss is computed there and is needed, unless backward is too long for a model and its loss."""
        mine = beside_the_model(facts)
        top = mine.spots[0] if mine.spots else None
        if top is None or top.samples < limit("min_samples"):
            return None
        severity = facts.grade(int(mine.ns * top.share), self.limits)
        if severity is None:
            return None
        on_files = file_work.file_call(facts, mine)
        if on_files:
            took = f"{facts.of_step(mine.ns)} is native code {_of_kernel(on_files)}"
            return self._finding(
                facts,
                mine,
                severity,
                _FILES,
                evidence=(took, *mine.evidence(facts)),
                does="works on files",
                doubts=(file_work.DOUBT,),
            )
        forward, backward = facts.run.phase_ns("forward"), facts.run.phase_ns("backward")
        in_backward = backward >= limit("backward_ratio") * forward and mine.ns >= limit("half_share") * forward
        return self._finding(
            facts,
            mine,
            severity if in_backward else "info",
            _LOSS_IN_PIECES if in_backward else _MAY_BE_A_LOSS,
            evidence=(
                f"{facts.of_step(mine.ns)} is in functions of yours that no module calls, most of it in what counts "
                "as forward: all that ends with a backward",
                *mine.evidence(facts),
                f"backward takes {backward / forward:.1f} times as long as forward, of a model and its loss one to two:"
                " it goes back through each of these operations"
                if in_backward
                else "a loss, or a part of the model that is a plain function, is needed there; a metric or an average "
                "of the weights is not needed in each step, and a batch can be made before, in a DataLoader worker",
            ),
            saves_more=in_backward,
        )

    def _in_the_model(self, facts: Facts) -> Finding | None:
        """An info: a part of the model may need it."""
        mine = arrays_in_model(facts)
        top = mine.spots[0] if mine.spots else None
        if top is None or top.samples < limit("min_samples") or facts.grade(mine.ns, self.limits) is None:
            return None
        took = f"{facts.of_step(mine.ns)} is in such libraries' code, which no gradient goes through by itself"
        return self._finding(facts, mine, "info", _IN_THE_MODEL, evidence=(took, *mine.evidence(facts)))

    def _finding(
        self,
        facts: Facts,
        mine: OwnCode,
        severity: Severity,
        advice: tuple[str, str, str],
        *,
        evidence: Sequence[str],
        does: str = "computes",
        doubts: Sequence[str] = (),
        saves_more: bool = False,
    ) -> Finding:
        title, fix, will_not_help = advice
        top = mine.spots[0]
        second = facts.second(mine.spots)
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause=facts.main_cause(mine.claims),
            claims=mine.claims,
            title=title,
            affected=_affected(facts, mine),
            confidence=facts.confidence(samples=mine.samples, doubts=doubts),
            evidence=evidence,
            who=(facts.step_thread_name,),
            where=facts.where(top),
            why=f"{facts.step_thread_name} {does} "
            + (f"in {facts.label(top)}" if second is None else facts.label_of_two(top, second, "in ")),
            fix=fix,
            fix_share=1.0 if second is None else top.share,
            will_not_help=will_not_help,
            saves_more=saves_more,
            finds_out=advice is _MAY_BE_A_LOSS,
        )

    def _blind(self, facts: Facts, mine: OwnCode) -> Abstained | None:
        """Where much native code runs beside the model, and it cannot be told whose."""
        outside = facts.matrix["other", "native"]
        ns, why = mine.ns, too_few_samples(facts, mine, self.limits)
        if facts.grade(outside, self.limits) is not None:
            if facts.run.feeds_device and facts.gpu is None:
                return Abstained(self.id, self.slug, "with a device, native code may be waiting for it")
            count = sum(d.count for d in facts.samples(phases={p for p, _ in native_cells(facts)}, states=["native"]))
            if count < limit("min_samples"):
                ns, why = outside, f"only {plural(count, 'sample')} of native code on the training thread: run longer"
        if why:
            return Abstained(self.id, self.slug, why, "compute beside the model", "compute", ns)
        return self._without_layers(facts)

    def _without_layers(self, facts: Facts) -> Abstained | None:
        mine = forward_without_layers(facts)
        top = mine.spots[0] if mine is not None and mine.spots else None
        if mine is None or top is None or top.samples < limit("min_samples"):
            return None
        if facts.grade(mine.ns, self.limits) is None:
            return None
        return Abstained(
            self.id,
            self.slug,
            f"no layer of torch.nn was seen: whether {facts.label(top)} is the model or works on its batch is not "
            f"told; forward takes {mine.ns / facts.run.phase_ns('backward'):.1f} times as long as backward, too long "
            "for a model alone",
            "compute before backward",
            "compute",
            mine.ns,
            f"what is the model; {top.share:.0%} of that is in {facts.label(top)}",
        )


def _affected(facts: Facts, mine: OwnCode) -> Affected:
    """The few steps that the samples or, between the phases, the exact times say that it is in; or all. Others may be
    long between the phases for a wait, or compute longer within one: its own do both."""
    seen = mine.affected(facts.steps)
    if seen.steps < facts.steps or mine.share(phase="other") < limit("held_share"):
        return seen
    few = facts.affected_by_part(mine.ns, phase="other")
    computing = facts.affected_by_part(mine.ns, cause=facts.main_cause(mine.claims))
    return few if computing.steps <= 2 * few.steps and computing.steps < facts.steps else seen


def _works_on_a_batch(stack: Sequence[FrameLike]) -> bool:
    return any(function_of(frame)[1].rpartition(".")[2] in _OF_A_BATCH for frame in stack)


def _of_kernel(call: str) -> str:
    return f"of system calls such as {call}: the kernel's"
