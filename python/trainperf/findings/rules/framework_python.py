"""TP309: the Python of PyTorch, and of frameworks on it, is much of the step. Said, never warned of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainperf.findings import loaders
from trainperf.findings.facts import ms, plural
from trainperf.findings.frames import in_module, is_framework, is_the_loops
from trainperf.findings.model import Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts, Spot
    from trainperf.runfile import Detail, Frame


def _frameworks(stack: Sequence[Frame]) -> bool:
    """A stack that was not read, or of libraries alone, is nobody's: whose it is cannot be told."""
    return not is_the_loops(stack) and any(is_framework(f.file) for f in stack)


_COMPILE = "model = torch.compile(model)  # or a larger batch"


class FrameworkPython:
    id = "TP309"
    slug = "framework-python"
    limits = Limits(limit("framework_share"), None)
    needs: tuple[str, ...] = ("gil_holds",)

    def check(self, facts: Facts) -> Outcome:
        cells = facts.cells("python")
        samples = facts.samples(phases={p for p, _ in cells}, states=["python"])
        count = sum(d.count for d in samples)
        if count < limit("min_samples"):
            return None
        whole = sum(d.ns for d in samples)
        theirs = [d for d in samples if _frameworks(facts.run.stack(d.stack))]
        other = sum(d.ns for d in theirs)
        claims = loaders.spread(cells, int(sum(cells.values()) * other / whole) if whole else 0)
        cost = sum(claims.values())
        if facts.grade(cost, self.limits) is None:
            return None
        caller = _caller(facts, theirs)
        return facts.finding(
            (self.id, self.slug),
            severity="info",
            cause="python",
            claims=claims,
            title="PyTorch's own Python, or a framework's on it, is much of the step",
            confidence=facts.confidence(samples=count),
            evidence=(
                f"{ms(cost / facts.steps)} of each step, by {plural(count, 'sample')}",
                f"{caller.share:.0%} of it in {facts.label_with_caller(caller)}" if caller is not None else "",
            ),
            who=(facts.step_thread_name,),
            where=facts.where(caller),
            why="modules, the optimizer and what drives them run in Python between operations"
            + (f": most of it in {facts.label(caller)}" if caller is not None else ""),
            fix=_fix(facts, theirs, caller),
            will_not_help="more DataLoader workers",
        )


def _caller(facts: Facts, theirs: list[Detail]) -> Spot | None:
    """The user's function that called the most of it; not that which runs the whole training (`trainer.fit(...)`)."""
    spots = facts.spots(theirs)
    if not spots or spots[0].share < limit("most_share") or spots[0].samples < limit("min_samples"):
        return None
    line = (spots[0].frame.file, spots[0].frame.line)
    samples = facts.samples()
    below = sum(d.ns for d in samples if any((f.file, f.line) == line for f in facts.run.stack(d.stack)))
    return spots[0] if below < limit("held_share") * sum(d.ns for d in samples) else None


def _fix(facts: Facts, theirs: list[Detail], caller: Spot | None) -> str:
    """By the part of the step that most of it is in."""
    parts: dict[str, int] = {}
    for d in theirs:
        part = "model" if d.phase == "backward" or in_module(facts.run.stack(d.stack)) else d.phase
        parts[part] = parts.get(part, 0) + d.ns
    most = max(parts, key=lambda part: parts[part])
    if most == "optimizer":
        return "torch.optim.AdamW(..., fused=True)  # or foreach=True, or a larger batch"
    if most == "model" or caller is None:
        return _COMPILE
    return f"# make these calls less often, or for more at once: {facts.where(caller)}"
