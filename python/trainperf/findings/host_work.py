"""What native code of the loop's own, beside training itself, is told as: where it is, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trainperf.findings import file_work
from trainperf.findings.frames import function_of, in_step_hook
from trainperf.findings.framework import trainer
from trainperf.findings.own_functions import (
    around_the_model,
    may_be_of_tensors,
    of_library,
    share_in_hooks,
    works_on_weights,
)
from trainperf.findings.saving import saves
from trainperf.findings.source_marks import APPEND, is_of_log
from trainperf.findings.text import OF_WEIGHTS, SELDOM, seldom_or
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainperf.findings.facts import Facts, Spot
    from trainperf.findings.frames import FrameLike
    from trainperf.findings.own_code import OwnCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    title: str
    fix: str
    will_not_help: str
    where: str = ""  # native code is: "between the phases of training"; "" where it depends
    does: str = "computes"
    doubt: str = ""
    on_files: bool = False

    def what(self, python: float) -> str:
        """`python`: the share of it that is Python."""
        if self.on_files:
            return f"native code {self.where}"
        if python >= limit("warn_share"):
            return f"code {self.where}, most of it native (NumPy, pandas, tensors)"
        return f"native code (NumPy, pandas, tensors) {self.where}"


_SAVES = Telling(
    title="the loop saves files",
    fix="# save less often, uncompressed where it compresses, or from a thread, of a copy",
    will_not_help="a faster disk: it is on the CPU; more DataLoader workers",
    where="that writes files",
    does="saves",
)
REWRITES = Telling(
    title="the loop rewrites a whole file each time",
    fix=APPEND,
    will_not_help="a faster disk: most of it is on the CPU; more DataLoader workers",
    where="around a file that is opened to be written anew",
    does="rewrites a whole file",
)
_SAVES_LOG = Telling(
    title="the loop writes its log",
    fix="# write it every N steps, or append the new rows instead of rewriting all of it",
    will_not_help="a faster disk: it is on the CPU; more DataLoader workers",
    where="that writes files",
    does="saves",
)
_FILES = Telling(
    title="the loop works on files",
    fix="# less often, in larger pieces, or from a thread: while the kernel works, Python runs on",
    will_not_help="a faster disk: it is the kernel on the CPU; more DataLoader workers",
    does="works on files",
    doubt=file_work.DOUBT,
    on_files=True,
)
_BETWEEN_PHASES = Telling(
    title="extra computation outside forward, backward and optimizer",
    fix=seldom_or("use one fused operation for all weights (torch._foreach_*)")
    + "\n# for all weights: clip_grad_norm_, torch._foreach_lerp_ for an average of them",
    will_not_help="a faster model or more DataLoader workers: it is neither training nor data",
    where="between the phases of training",
)
# What is done in few steps, such as once an epoch, is rare already.
_NOW_AND_THEN = replace(
    _BETWEEN_PHASES, fix="# do it faster, once before the loop, or beside training: in a thread or another process"
)
_BEFORE_THE_MODEL = Telling(
    title="the loop computes before it calls the model",
    fix="# what is no part of the batch: every N steps, or in fewer operations\n"
    "# make the batch in Dataset.__getitem__ or collate_fn, with DataLoader(..., num_workers=...), or once "
    "beforehand, or on the GPU",
    will_not_help="a faster model",
    where="before the model is called",
)
_AFTER_THE_MODEL = Telling(
    title="the loop computes between the model and the backward",
    fix=seldom_or("use fewer operations, in tensors"),
    will_not_help="a faster model; more DataLoader workers: it is of what the model has computed",
    where="between the model and the backward",
)
_AFTER_CALL = replace(_BETWEEN_PHASES, where="after the model is called")
_AFTER_UPDATE = replace(_BETWEEN_PHASES, where="after the update")
_BETWEEN_CALLS = Telling(
    title="the loop computes between its calls of the model",
    fix=_AFTER_THE_MODEL.fix,
    will_not_help="a faster model; more DataLoader workers, where it is of what the model has computed",
    where="between calls of the model",
)
_AROUND_THE_MODEL = Telling(
    title="the loop computes before it calls the model, and after",
    fix=f"{SELDOM}\n# make the batch in Dataset.__getitem__ or collate_fn, with DataLoader(..., num_workers=...)",
    will_not_help="a faster model",
)
_IN_HOOKS = Telling(
    title="the loop computes in forward hooks",
    fix="# in the hook: only every N calls; or take it off once it has seen enough:\nhandle.remove()",
    will_not_help="more DataLoader workers",
    where="of hooks that modules call",
    doubt="a hook that changes what its module returns is a part of the model",
)
_IN_BACKWARD_HOOKS = replace(
    _IN_HOOKS,
    title="the loop computes in hooks of the backward",
    where="of hooks that autograd calls with a gradient",
    doubt="a hook that changes the gradient is a part of the training",
)
_IN_STEP_HOOKS = replace(
    _IN_HOOKS,
    title="the loop computes in hooks of the optimizer's step",
    where="of hooks that the optimizer calls",
    doubt="a hook that changes the gradients is a part of the training",
)
_IN_CLOSURE = Telling(
    title="the loop computes within the optimizer's step, beside forward and backward",
    fix=seldom_or("do it once, outside of the closure"),
    will_not_help=_BETWEEN_PHASES.will_not_help,
    where="in the closure that the optimizer's step calls",
)
_IN_LIGHTNINGS_CLOSURE = replace(
    _IN_CLOSURE, fix=_BETWEEN_PHASES.fix, where="in what Lightning calls within the optimizer's step: hooks"
)

# Lightning's hooks that are given a batch, and return it.
_OF_A_BATCH = {"on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer"}


def of_files(call: str) -> Telling:
    return replace(_FILES, where=f"of system calls such as {call}: the kernel's")


def telling(facts: Facts, mine: OwnCode, top: Spot, *, rare: bool) -> Telling:
    """`top`: the costliest place; `rare`: it is in few steps."""
    if saves(top.frames):
        return _SAVES_LOG if is_of_log(top.frame) else _SAVES
    asked = of_library(facts, mine, top)
    if asked is not None:
        name, fix = asked
        does = f"computes {name}"
        return Telling(
            title=f"the loop {does}",
            fix=fix,
            will_not_help=_BETWEEN_PHASES.will_not_help,
            where=f"of {name}",
            does=does,
        )
    call = file_work.file_call(facts, mine)
    if call:
        return of_files(call)
    if share_in_hooks(facts, mine) > limit("most_share"):
        return _IN_HOOKS
    if mine.share(phase="backward") > limit("most_share"):
        return _IN_BACKWARD_HOOKS
    if mine.share(phase="optimizer") > limit("most_share"):
        if in_step_hook(top.frames):
            return _IN_STEP_HOOKS
        return _IN_LIGHTNINGS_CLOSURE if trainer(facts) else _IN_CLOSURE
    if mine.share(phase="forward") > limit("most_share") or _works_on_a_batch(top.frames):
        doubt = ""
        if may_be_of_tensors(facts, mine, top):
            doubt = "what it computes on lines of its own may be of tensors, and a part of the loss"
        return replace(_by_the_model(facts, mine), doubt=doubt)
    if rare:
        return _NOW_AND_THEN
    if works_on_weights(facts, mine, top):
        return replace(_BETWEEN_PHASES, fix=f"{OF_WEIGHTS}\n{_BETWEEN_PHASES.fix}")
    return _BETWEEN_PHASES


def _by_the_model(facts: Facts, mine: OwnCode) -> Telling:
    """By when most of it was, among the model's calls and the update."""
    at = around_the_model(facts, [d for d in mine.details if d.phase == "forward"])
    notably = 1 - limit("held_share")
    if at.after >= limit("held_share"):
        return _AFTER_THE_MODEL
    if at.after + at.updated >= limit("held_share"):
        return _AFTER_UPDATE if at.updated >= limit("held_share") else _AFTER_CALL
    if at.between > limit("most_share"):
        return _BETWEEN_CALLS
    if min(at.before, at.after + at.updated) <= notably:
        return _BEFORE_THE_MODEL
    where = f"around the model, {at.after:.0%} of it between that and the backward"
    if at.updated > notably:
        where = f"around the model, {at.after + at.updated:.0%} of it after that"
    return replace(_AROUND_THE_MODEL, where=where)


def _works_on_a_batch(stack: Sequence[FrameLike]) -> bool:
    return any(function_of(frame)[1].rpartition(".")[2] in _OF_A_BATCH for frame in stack)
