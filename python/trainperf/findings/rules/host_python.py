"""TP302: the user's own Python, on the CPU with the GIL, takes a notable part of the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainperf.findings import source_marks
from trainperf.findings.facts import ms, plural
from trainperf.findings.frames import (
    in_backward_hook,
    in_closure,
    in_module,
    label,
    makes_text,
)
from trainperf.findings.model import Abstained, Limits, Outcome
from trainperf.findings.own_code import (
    called_together,
    own_code,
    python_cells,
    too_few_samples,
    unread_share,
    with_what_they_call,
)
from trainperf.findings.own_functions import (
    around_the_model,
    computes_loss,
    may_free_a_batch,
    of_function,
    of_library,
    untold_of_line,
    works_on_weights,
)
from trainperf.findings.text import OF_WEIGHTS, SELDOM, seldom_or
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Affected, Facts, Spot
    from trainperf.findings.own_code import OwnCode
    from trainperf.runfile import Detail


_RUNS = "the loop's own Python code"
_HOLDS = "a line of the loop that holds the GIL"
# Where the code runs says where else it could: what is a part of each step can be in no other process.
_IN_TENSORS = {
    "optimizer": "# update all parameters by a few tensor operations (torch._foreach_add_), or by torch.optim",
    "backward": "# do it by a few tensor operations: it is a part of every backward",
    "hook": "# in the hook: by a few tensor operations and only every N calls; or take it off: handle.remove()",
    "model": "# do it by a few tensor operations, or once and not in each call of the model",
}
_EARLY = "it runs before the model is called, not in it: that counts as forward, whose end is the backward"
_NO_THREADS = "threads: Python code in a thread takes the GIL from training"
_OF_THE_BATCH = "# make the batch in a DataLoader worker"
_NEEDED = "# if every step needs it: vectorize it, in tensor operations"
_ELSEWHERE = (
    "# compute metrics every N steps; make the batch in a DataLoader worker; vectorize the rest, in tensors\n"
    "if step % 50 == 0: ..."
)
_BEFORE_THE_MODEL = f"{_OF_THE_BATCH}\n{_NEEDED}\n{SELDOM}"
_AFTER_THE_MODEL = seldom_or("vectorize it, in tensors; search by a set or dict")
# What is done in few steps, such as once an epoch, is rare already.
_NOW_AND_THEN = "# do it faster (in tensors, or NumPy), once before the loop, or beside training in another process"
_OF_RESULTS = (
    "# vectorize it over the batch, in tensors (topk, gather; for boxes torchvision.ops.nms), or run it in other\n"
    "# processes:\n"
    "pool = concurrent.futures.ProcessPoolExecutor()  # once\n"
    "pool.submit(postprocess, output.cpu().numpy())"
)
_OF_A_LOSS = "# a loss: of the whole batch at once, without a Python loop over samples, classes or pairs"
_NO_GRADIENT = "# where no gradient is needed: with torch.no_grad(), every N steps"
_MAY_FREE = (
    "# if it frees a batch that a worker made (del, the next one takes its name): smaller samples, such as uint8\n"
    "# else do it in tensors, every N steps, or in a DataLoader worker"
)
_OF_TEXT = (
    "# print every N steps, or less than the tensor: loss.item(), x.shape\nif step % 50 == 0: print(...)",
    "# print less than the tensor: loss.item(), x.shape",
)
_OF_COPIES = (
    "# copy every N steps, or only what is to be kept:\nif step % 50 == 0: ...",
    "# copy only what is to be kept",
)


def _is_notable(facts: Facts, mine: OwnCode) -> bool:
    """The costliest of them, and seen often enough to be named."""
    if not mine.spots or mine.spots[0].samples < limit("min_samples"):
        return False
    return facts.loop_share(int(mine.ns * mine.spots[0].share)) >= limit("one_function_share")


def _is_of_many(facts: Facts, mine: OwnCode) -> bool:
    """All of them together, of which each is small: where one seems to be large, too little was seen of it."""
    if mine.samples < 2 * limit("min_samples"):
        return False
    return facts.loop_share(int(mine.ns * mine.spots[0].share)) < limit("one_function_share")


def _native(mine: OwnCode) -> str:
    """How much of it is native code, where that is notable."""
    share = mine.share(mechanism="native")
    if share < limit("warn_share"):
        return ""
    return f"{share:.0%} of it is native code (NumPy, pandas, tensors) of these functions; the rest holds the GIL"


def _unread(facts: Facts, mine: OwnCode) -> str:
    """How many of its cells' samples have no stack, where that is notable."""
    share = unread_share(facts, mine.claims)
    if share < limit("warn_share"):
        return ""
    return f"{share:.0%} of the samples could not be read: functions called each other too fast"


def _steps(facts: Facts, affected: Affected) -> str:
    return "the step" if affected.steps == facts.steps else "some steps"


class HostPython:
    id = "TP302"
    slug = "host-python"
    limits = Limits(limit("one_function_share"), limit("critical_share"))
    limits_together = Limits(limit("several_functions_share"), limit("critical_share"))
    needs: tuple[str, ...] = ("gil_holds",)

    def check(self, facts: Facts) -> Outcome:
        by_function = own_code(facts, "python")
        severity = facts.grade(by_function.ns, self.limits)
        if severity is None:
            return self._blind(facts, by_function)
        alone = _is_notable(facts, by_function)
        mine = by_function if alone else with_what_they_call(facts, by_function)
        if not _is_notable(facts, mine):
            return self._together(facts) or self._blind(facts, by_function)
        top = mine.spots[0]
        second = facts.second(mine.spots)
        text, asked = self._makes_text(facts, mine, top), of_library(facts, mine, top)
        may_free = may_free_a_batch(facts, mine, top)
        does = (
            f"makes the text of tensors (print, repr) for {label(top.frame, facts.base)}"
            if text
            else f"computes {asked[0]} in {facts.label_with_caller(top)}"
            if asked is not None
            else f"is on the CPU, holding the GIL, in {label(top.frame, facts.base)}"
            if may_free
            else f"rewrites a whole file in {facts.label_with_caller(top)}"
            if source_marks.rewrites(facts, top)
            else f"runs {facts.label_with_caller(top) if second is None else facts.label_of_two(top, second)}"
            f"{'' if alone else ', and what that calls' if second is None else ', and what these call'}"
        )
        native, moving = _native(mine), mine.share(phase="transfer")
        untold = untold_of_line(facts, mine, top)
        cause = facts.main_cause(mine.claims)
        affected = facts.affected_by_part(mine.ns, cause=cause)
        rare = affected.steps < facts.steps
        of_top = [d for d, _ in of_function(facts, mine, top)]
        before, usual = (False, _MAY_FREE) if may_free else self._elsewhere(facts, of_top, affected)
        known = source_marks.fix(facts, top)
        if usual is _ELSEWHERE and works_on_weights(facts, mine, top):
            usual = f"{OF_WEIGHTS}\n{_ELSEWHERE}"
        fixes = _OF_TEXT if text else _OF_COPIES if top.call == "copy.deepcopy" else None
        by_part = _IN_TENSORS.get(self._part(facts, mine, top))
        # Only what nothing else is said of: no gradient goes through a metric or a print.
        in_backward = usual is _AFTER_THE_MODEL and not (rare or asked or fixes or by_part or known)
        in_backward = in_backward and self._makes_backward_long(facts, mine)
        if in_backward:
            usual = f"{_OF_A_LOSS}\n{_NO_GRADIENT}"
        elif not may_free and computes_loss(facts, mine, top):
            usual = f"{_OF_A_LOSS}\n{usual}"
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause=cause,
            claims=mine.claims,
            title=f"{_HOLDS if may_free else _RUNS} takes much of {_steps(facts, affected)}",
            affected=affected,
            confidence=facts.confidence(
                samples=mine.samples,
                doubts=("what C does with the GIL held looks like Python",) if may_free else (),
            ),
            evidence=(
                f"{self._took(facts, mine, affected)} the training thread "
                + ("holds the GIL on the CPU" if may_free else "runs your Python, or a library's for it")
                + ("" if native or may_free else ", holding the GIL"),
                *mine.evidence(facts, with_caller=True),
                *(() if alone else (f"by function: {line}" for line in by_function.evidence(facts))),
                "below that line no Python function runs: it is the line's own Python, or what it frees or calls in C; "
                "a batch that a worker made is unmapped where its last name goes"
                if may_free
                else "",
                _unread(facts, mine),
                native,
                f"tensor operations of {facts.where(top)} take {ms(untold / facts.steps)} more of each step: "
                "not told with it, as a loss would look the same"
                if facts.share(untold) >= limit("warn_share")
                else "",
                f"{moving:.0%} of it in phase transfer (h2d_copy), where nothing is copied to a device"
                if moving
                else "",
                f"backward takes {ms(facts.run.phase_ns('backward') / facts.steps)} a step, longer than a model and "
                "its loss need: it goes back through each of these operations"
                if in_backward
                else "",
                _EARLY if before else "",
            ),
            who=(facts.step_thread_name,),
            where=facts.where(top),
            why=f"{facts.step_thread_name} {does}",
            fix=asked[1]
            if asked is not None
            else known
            if known
            else fixes[rare]
            if fixes is not None
            else by_part or usual,
            fix_share=facts.saved_share(mine.spots),
            saves_more=in_backward,
            will_not_help=_NO_THREADS,
        )

    def _together(self, facts: Facts) -> Outcome:
        """Of functions that the loop calls, none of them notable: what holds of each, and no more."""
        mine = called_together(facts)
        severity = facts.grade(mine.ns, self.limits_together)
        if severity is None or not _is_of_many(facts, mine):
            return None
        top, functions = mine.spots[0], plural(len(mine.spots), "function")
        cause = facts.main_cause(mine.claims)
        affected = facts.affected_by_part(mine.ns, cause=cause)
        before, usual = self._elsewhere(facts, mine.details, affected)
        if usual is _AFTER_THE_MODEL and any(computes_loss(facts, mine, spot) for spot in mine.spots):
            usual = f"{_OF_A_LOSS}\n{usual}"
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause=cause,
            claims=mine.claims,
            title=f"functions that the loop calls take much of {_steps(facts, affected)} together",
            affected=affected,
            confidence=facts.confidence(samples=mine.samples),
            evidence=(
                f"{self._took(facts, mine, affected)} the training thread runs {functions} of yours, with what these "
                "call: none of them is notable by itself",
                *mine.evidence(facts, with_caller=True),
                _unread(facts, mine),
                _native(mine),
                _EARLY if before else "",
            ),
            who=(facts.step_thread_name,),
            where=facts.where(top),
            why=f"{facts.step_thread_name} runs {functions} that the loop calls, "
            f"{facts.label_of_two(top, mine.spots[1])}",
            fix=usual,
            will_not_help=_NO_THREADS,
        )

    @staticmethod
    def _took(facts: Facts, mine: OwnCode, affected: Affected) -> str:
        if affected.steps == facts.steps:
            return facts.of_step(mine.ns)
        each = ms(mine.ns * affected.share / affected.steps)
        return f"{affected.steps:,} of {facts.steps:,} steps, {each} each:"

    @staticmethod
    def _elsewhere(facts: Facts, details: Sequence[Detail], affected: Affected) -> tuple[bool, str]:
        """Whether it runs before the model is called, and where else it could run."""
        around = around_the_model(facts, details)
        before = around.before >= limit("held_share")
        if affected.rare(facts.steps):
            return before, _NOW_AND_THEN
        if facts.inference:
            return False, _OF_THE_BATCH if before else _OF_RESULTS
        if around.after + around.updated >= limit("held_share"):
            return False, _AFTER_THE_MODEL
        return before, _BEFORE_THE_MODEL if before else _ELSEWHERE

    def _blind(self, facts: Facts, mine: OwnCode) -> Abstained | None:
        """Where there is much Python, and it cannot be told whose."""
        cells = python_cells(facts)
        ns = sum(cells.values())
        if facts.grade(ns, self.limits) is None:
            return None
        count = sum(d.count for d in facts.samples(phases={p for p, _ in cells}, states=["python"]))
        why, unknown = too_few_samples(facts, mine, self.limits), ""
        if count < limit("min_samples"):
            why = f"only {plural(count, 'sample')} of Python on the training thread: run longer to tell"
        elif not why and facts.grade(mine.ns, self.limits) is not None and mine.samples < limit("good_samples"):
            why = f"only {plural(mine.samples, 'sample')} in {plural(len(mine.spots), 'function')} of yours"
            unread = _unread(facts, mine)
            why = f"{why}: {unread or 'too few samples, run longer to tell'}"
            unknown = "whose it is" if unread else ""
        return Abstained(self.id, self.slug, why, "python", "python", ns, unknown) if why else None

    @staticmethod
    def _part(facts: Facts, mine: OwnCode, top: Spot) -> str:
        """The part of the step that most of the top function's time is in: a phase, the model, a closure, a hook."""
        parts: dict[str, int] = {}
        for d, stack in of_function(facts, mine, top):
            part = "model" if d.phase == "forward" and in_module(stack) else d.phase
            part = "closure" if part == "optimizer" and in_closure(stack) else part
            part = "hook" if part == "backward" and in_backward_hook(stack) else part
            parts[part] = parts.get(part, 0) + d.ns
        return max(parts, key=lambda part: parts[part], default="")

    @staticmethod
    def _makes_backward_long(facts: Facts, mine: OwnCode) -> bool:
        """Most of forward is this, and backward computes longer than it would for what else is in forward, and than
        this."""
        if facts.run.feeds_device:
            return False  # whose backward takes its time elsewhere
        forward, in_forward = facts.run.phase_ns("forward"), int(mine.ns * mine.share(phase="forward"))
        backward = sum(facts.matrix["backward", mechanism] for mechanism in ("python", "native"))
        long = backward >= max(in_forward, limit("backward_ratio") * (forward - in_forward))
        return long and in_forward >= limit("half_share") * forward

    @staticmethod
    def _makes_text(facts: Facts, mine: OwnCode, top: Spot) -> bool:
        """Most of the top function's time is spent on tensors that are printed."""
        text = sum(d.ns for d, stack in of_function(facts, mine, top) if makes_text(stack))
        return text > limit("most_share") * top.ns
