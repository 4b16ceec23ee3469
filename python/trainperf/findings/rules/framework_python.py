"""TP309: the Python of PyTorch, and of frameworks on it, is much of the step. Said, never warned of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainperf.findings import loaders
from trainperf.findings.facts import ms, plural
from trainperf.findings.frames import is_framework, is_the_loops
from trainperf.findings.model import Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.runfile import Frame


def _frameworks(stack: Sequence[Frame]) -> bool:
    """A stack that was not read, or of libraries alone, is nobody's: whose it is cannot be told."""
    return not is_the_loops(stack) and any(is_framework(f.file) for f in stack)


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
        other = sum(d.ns for d in samples if _frameworks(facts.run.stack(d.stack)))
        claims = loaders.spread(cells, int(sum(cells.values()) * other / whole) if whole else 0)
        cost = sum(claims.values())
        if facts.grade(cost, self.limits) is None:
            return None
        return facts.finding(
            (self.id, self.slug),
            severity="info",
            cause="python",
            claims=claims,
            title="PyTorch's own Python, or a framework's on it, is much of the step",
            confidence=facts.confidence(samples=count),
            evidence=(f"{ms(cost / facts.steps)} of each step, by {plural(count, 'sample')}",),
            who=(facts.step_thread_name,),
            why="modules, the optimizer and what drives them run in Python between operations",
            fix="model = torch.compile(model)  # or a larger batch",
            will_not_help="more DataLoader workers",
        )
