"""TP404: a phase of the step takes longer the more steps were done: something is added at each step."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trainperf.findings import growth, source_marks
from trainperf.findings.facts import Spot, ms, plural
from trainperf.findings.frames import below_users, label
from trainperf.findings.model import Abstained, Cell, Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainperf.findings.facts import Facts
    from trainperf.findings.frames import FrameLike
    from trainperf.findings.growth import Grown, Growth

_NAMES = {
    "fetch": "data loading",
    "transfer": "the transfer to the GPU",
    "optimizer": "the optimizer's step",
    "checkpoint": "writing checkpoints",
    "forward": "forward (with what runs before it)",
    "other": "code outside forward, backward and optimizer",
}
_BACKWARD = """with torch.no_grad():  # or on weight.detach(): whatever the loop does with weights besides training them
    update(model)
total += loss.detach()  # a sum or a list of losses keeps every graph; state = state.detach() cuts a recurrent one
# search the loop for register_hook, retain_graph=True, and calls on weights or losses under grad mode"""
_HISTORY = """recent = collections.deque(maxlen=100)  # in place of a list of all steps
total += value; mean = total / (step + 1)  # a running result, in place of a pass over the history"""
_FIXES = {
    "backward": _BACKWARD,
    "optimizer": "optimizer.add_param_group(group)  # once, before the loop; and add each weight once",
    "logging": "file.write(line)  # open(path, 'a'): append the new row, in place of writing the whole table again\n"
    + _HISTORY,
    "checkpoint": "# save the weights and the optimizer's state; append histories to a file of their own",
    "validation": "metric.reset()  # after each validation\n" + _HISTORY,
    "fetch": "# keep what __getitem__ and the sampler search or copy from growing with the samples served\n" + _HISTORY,
}
# A call on a tensor that requires grad becomes a part of its graph: in each step one more.
_GRAPH_CALLS = re.compile(r"[/\\]torch[/\\](distributed[/\\]|utils[/\\]hooks\.py$)")


class GrowingStep:
    id = "TP404"
    slug = "growing-step"
    limits = Limits(limit("warn_share"), limit("critical_share"))
    needs: tuple[str, ...] = ()

    def check(self, facts: Facts) -> Outcome:
        if facts.steps < limit("growth_min_steps"):
            are = "is" if facts.steps == 1 else "are"
            return Abstained(self.id, self.slug, f"{plural(facts.steps, 'step')} {are} too few to see a trend")
        grown = facts.grown
        severity = facts.grade(grown.excess_ns, self.limits) if grown is not None else None
        if grown is None or severity is None:
            return None
        if facts.wall_ns < limit("growth_min_s") * 1e9:
            return Abstained(self.id, self.slug, "the steps get longer, in less than a second: run longer")
        if grown.inputs or _waits_for_gpu(grown):
            return self._larger_inputs(facts, grown)
        top = grown.phases[0]
        spot = _grown_most(facts, top)
        suspect = _suspect(facts) if top.phase == "backward" and spot is None else None
        claims: dict[Cell, int] = {}
        for phase in grown.phases:
            claims |= phase.claims
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause=facts.main_cause(claims),
            claims=claims,
            by_device=False,
            title=_title(facts, top, spot),
            confidence=facts.confidence(samples=spot.samples if spot is not None else None),
            evidence=(*_evidence(facts, grown), _excess(facts, grown)),
            who=(facts.step_thread_name,),
            where=facts.where(spot or suspect),
            why=_why(facts, top, spot, suspect),
            fix=_fix(facts, top, spot, suspect),
            will_not_help="torch.compile, a faster CPU, fewer samples a batch: the steps go on growing",
        )

    def _larger_inputs(self, facts: Facts, grown: Grown) -> Outcome:
        """Nothing tells longer inputs from a kept history that the model itself works on."""
        return facts.finding(
            (self.id, self.slug),
            severity="info",
            cause=facts.main_cause(grown.phases[0].claims),
            claims={},
            by_device=False,
            title="the model's work grows with the steps: longer inputs, or a history that it keeps",
            confidence=("low", "the sizes of the inputs are not recorded"),
            evidence=(*_evidence(facts, grown), _excess(facts, grown)),
            who=(facts.step_thread_name,),
            why="forward and backward grow together, as they do with longer sequences or larger batches",
            fix="# no action needed where the inputs grow on purpose (a curriculum); else print their shapes:\n"
            "print(step, inputs.shape)",
            fix_share=0.0,
            finds_out=True,
            will_not_help="less logging or faster data: the model itself takes longer",
        )


def _waits_for_gpu(grown: Grown) -> bool:
    """The GPU has more to do: what of, the host's phases do not tell."""
    waits = sum(ns for g in grown.phases for (_, mechanism), ns in g.claims.items() if mechanism == "gpu_wait")
    return waits >= limit("half_share") * grown.excess_ns


def _name(growing: Growth) -> str:
    return _NAMES.get(growing.phase, growing.phase)


def _grown_most(facts: Facts, top: Growth) -> Spot | None:
    """The function that has most of the rise. Of one that writes all rows so far again it is known why it grows."""
    grew = [(s, part) for s, part in growth.grown_spots(facts, top.phase) if not _calls_backward(facts, s)]
    mine = [s for s, part in grew if part >= limit("half_share")]
    return next(iter(mine), None) or next((s for s, _ in grew[:1] if source_marks.rewrites(facts, s)), None)


def _title(facts: Facts, top: Growth, spot: Spot | None) -> str:
    rise = f"{top.per_step_ns / 1e6:.2g} ms"
    if spot is not None and source_marks.rewrites(facts, spot):
        return f"{spot.frame.function} takes {rise} longer at each step: it writes its whole log again"
    if spot is not None and top.phase in ("forward", "other"):  # which phase that is tells little
        return f"{spot.frame.function} takes {rise} longer at each step: what it works on grows"
    return f"{_name(top)} grows by {rise} a step: something is added at each step"


def _evidence(facts: Facts, grown: Grown) -> tuple[str, ...]:
    lines = []
    for g in grown.phases:
        thirds = ", ".join(ms(ns) for ns in g.thirds_ns)
        lines.append(
            f"{_name(g)}: {ms(g.first_ns)} a step at first, {ms(g.last_ns)} at the end; means of the thirds: {thirds}"
            + ("; it grows faster and faster" if g.bends else "")
        )
    growing = {g.phase for g in grown.phases}
    rest = facts.wall_ns - sum(ns for (phase, _), ns in facts.matrix.items() if phase in growing)
    return (*lines, f"the rest of the step, {ms(rest / facts.steps)}, does not grow")


def _excess(facts: Facts, grown: Grown) -> str:
    return (
        f"at the first steps' pace the run would take {ms(grown.excess_ns)} less ({facts.share(grown.excess_ns):.0%})"
    )


def _calls_backward(facts: Facts, spot: Spot) -> bool:
    """It only calls backward: what grows is the graph, which other code made."""
    return any(re.search(r"[/\\]torch[/\\]autograd[/\\]", f.file) for f in below_users(spot.frames))


def _suspect(facts: Facts) -> Spot | None:
    """The user's function that calls what may add to the graph."""

    def adds(stack: Sequence[FrameLike]) -> bool:
        return any(_GRAPH_CALLS.search(f.file) for f in below_users(stack))

    outside = ("forward", "other", "optimizer")
    spots = facts.spots(facts.samples(phases=outside), keep=adds)
    return spots[0] if spots and spots[0].samples >= limit("min_samples") else None


def _why(facts: Facts, top: Growth, spot: Spot | None, suspect: Spot | None) -> str:
    if spot is not None and top.phase == "backward":
        return f"{facts.label(spot)} runs in backward, more often or for longer at each step"
    if spot is not None and source_marks.rewrites(facts, spot):
        return f"{facts.label_with_caller(spot)} writes every row so far again, in place of the new one"
    if spot is not None:
        return f"{facts.label_with_caller(spot)} takes longer at each step, as what it works on grows"
    if suspect is not None:
        at = label(suspect.frame, facts.base)
        return f"{at} may add to the graph: a call on weights that require grad leaves a hook at each step"
    if top.phase == "backward":
        return "each step adds to the autograd graph (a hook, a kept graph), and backward goes through all of it"
    return f"each step adds to what {_name(top)} goes through (a list, a table, a buffer)"


def _fix(facts: Facts, top: Growth, spot: Spot | None, suspect: Spot | None) -> str:
    fix = _FIXES.get(top.phase, _HISTORY)
    if spot is not None and source_marks.rewrites(facts, spot):
        return source_marks.APPEND
    if suspect is not None:
        calls = f"with torch.no_grad():  # around the calls in {label(suspect.frame, facts.base)}\n    update(model)"
        return "\n".join((calls, *fix.splitlines()[2:]))
    if spot is not None and top.phase == "backward":
        return f"# register {facts.label(spot)} once, before the loop: each call of register_hook adds one more\n{fix}"
    return fix
