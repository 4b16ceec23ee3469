"""TP309: the Python of PyTorch, and of frameworks on it, is much of the step. Said, never warned of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from trainperf.findings import loaders, log_calls
from trainperf.findings.debug_modes import in_anomaly
from trainperf.findings.facts import ms, plural
from trainperf.findings.frames import in_module, in_profiler, is_framework, is_the_loops
from trainperf.findings.model import Cell, Finding, Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts, Spot
    from trainperf.runfile import Detail, Frame


def _frameworks(stack: Sequence[Frame]) -> bool:
    """A stack that was not read, or of libraries alone, is nobody's: whose it is cannot be told."""
    return not is_the_loops(stack) and any(is_framework(f.file) for f in stack)


_TITLE = "PyTorch's own Python, or a framework's on it, is much of the step"
_WHY = "modules, the optimizer and what drives them run in Python between operations"
_PROFILER = (
    "PyTorch's profiler is much of the step",
    "torch.profiler starts, stops and writes its trace on the training thread",
    "# profile fewer steps, and without with_stack; or take the profiler out:\n"
    "profile(schedule=schedule(wait=10, warmup=2, active=5, repeat=1))",
)
_NO_ANOMALY = "torch.autograd.set_detect_anomaly(False)  # or no `with` of it: each operation keeps its stack"
_COMPILE = "model = torch.compile(model)  # or a larger batch"
_COMPILE_PART = (
    "self.model = torch.compile(self.model)  # its networks: what logs cannot be compiled; or a larger batch"
)


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
        told = set(calls.details) if (calls := log_calls.log_calls(facts)).severity is not None else set()
        theirs = [d for d in samples if _frameworks(facts.run.stack(d.stack)) and d not in told]
        theirs = [d for d in theirs if not in_anomaly(facts.run.stack(d.stack))]  # TP313
        other = sum(d.ns for d in theirs)
        claims = loaders.spread(cells, int(sum(cells.values()) * other / whole) if whole else 0)
        profilers = [d for d in theirs if in_profiler(facts.run.stack(d.stack))]
        profiling = _by_phase(cells, samples, profilers)
        # It is told by itself where there is not as much beside it as would be told.
        if facts.grade(sum(claims.values()) - sum(profiling.values()), self.limits) is None:
            worth_it = facts.grade(sum(profiling.values()), Limits(limit("warn_share"), None)) is not None
            if worth_it and sum(d.count for d in profilers) >= limit("min_samples"):
                return self._finding(facts, profiling, profilers, _PROFILER)
        if facts.grade(sum(claims.values()), self.limits) is None:
            return None
        share = sum(d.ns for d in profilers) / other
        fix, fix_share = _fix(facts, theirs, _caller(facts, theirs))
        return self._finding(
            facts,
            claims,
            theirs,
            (_TITLE, _WHY, fix),
            fix_share=fix_share,
            beside=f"{share:.0%} of it is torch.profiler's" if share >= limit("warn_share") else "",
        )

    def _finding(
        self,
        facts: Facts,
        claims: dict[Cell, int],
        seen: list[Detail],
        words: tuple[str, str, str],
        *,
        fix_share: float = 1.0,
        beside: str = "",
    ) -> Finding:
        title, why, fix = words
        caller, count = _caller(facts, seen), sum(d.count for d in seen)
        return facts.finding(
            (self.id, self.slug),
            severity="info",
            cause="python",
            claims=claims,
            title=title,
            confidence=facts.confidence(samples=count),
            evidence=(
                f"{ms(sum(claims.values()) / facts.steps)} of each step, by {plural(count, 'sample')}",
                f"{caller.share:.0%} of it in {facts.label_with_caller(caller)}" if caller is not None else "",
                beside,
            ),
            who=(facts.step_thread_name,),
            where=facts.where(caller),
            why=why + (f": most of it in {facts.label(caller)}" if caller is not None else ""),
            fix=fix,
            fix_share=fix_share,
            will_not_help="more DataLoader workers",
        )


def _by_phase(cells: Mapping[Cell, int], samples: list[Detail], some: list[Detail]) -> dict[Cell, int]:
    """The exact time that some of the samples stand for, each in the cell of its phase."""
    claims: dict[Cell, int] = {}
    for cell, ns in cells.items():
        every = sum(d.ns for d in samples if d.phase == cell[0])
        mine = sum(d.ns for d in some if d.phase == cell[0])
        if mine:
            claims[cell] = ns * mine // every
    return claims


def _caller(facts: Facts, theirs: list[Detail]) -> Spot | None:
    """The user's function that called the most of it; not that which runs the whole training (`trainer.fit(...)`)."""
    spots = facts.spots(theirs)
    if not spots or spots[0].share < limit("most_share") or spots[0].samples < limit("min_samples"):
        return None
    line = (spots[0].frame.file, spots[0].frame.line)
    samples = facts.samples()
    below = sum(d.ns for d in samples if any((f.file, f.line) == line for f in facts.run.stack(d.stack)))
    return spots[0] if below < limit("held_share") * sum(d.ns for d in samples) else None


def _fix(facts: Facts, theirs: list[Detail], caller: Spot | None) -> tuple[str, float]:
    """By the part of the step that most of it is in, and that part's share; before that, what makes each operation keep
    a stack."""
    if facts.run.anomaly_percent:
        return f"{_NO_ANOMALY}\n{_fix_of_most(facts, theirs, caller)[0]}", 1.0
    return _fix_of_most(facts, theirs, caller)


def _fix_of_most(facts: Facts, theirs: list[Detail], caller: Spot | None) -> tuple[str, float]:
    parts: dict[str, int] = {}
    counts: Counter[str] = Counter()
    for d in theirs:
        stack = facts.run.stack(d.stack)
        part = (
            "log" if log_calls.is_log_call(stack) else "model" if d.phase == "backward" or in_module(stack) else d.phase
        )
        parts[part] = parts.get(part, 0) + d.ns
        counts[part] += d.count
    most = max(parts, key=lambda part: parts[part])
    if counts[most] < limit("min_samples"):
        return "# run longer: too few samples to tell whether the model, the optimizer or logging has most of it", 0.0
    share = parts[most] / sum(parts.values())
    if most == "log":
        return log_calls.FEWER, share
    if most == "optimizer":
        return "torch.optim.AdamW(..., fused=True)  # or foreach=True, or a larger batch", share
    if most == "model" or caller is None:
        lightning = "lightning" in facts.run.meta.get("framework", "")
        return _COMPILE_PART if lightning else _COMPILE, share
    return f"# make these calls less often, or for more at once: {facts.where(caller)}", caller.share
