"""TP402: torch.compile compiled during the run. A warm-up is said; compiling again, later or often, is warned of."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainperf.findings import loaders
from trainperf.findings.facts import ms
from trainperf.findings.model import Cell, Limits, Outcome, Severity
from trainperf.findings.text import NOTHING
from trainperf.findings.thresholds import limit
from trainperf.findings.vocabulary import CAUSES
from trainperf.runfile import HAS_VALIDATION

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.runfile import Span

_SHOWN = 4  # steps that a title lists
# Compiling is no phase and no mechanism of its own: it is these, in the share of its steps that it took. For a CPU the
# thread waits meanwhile because of the compiler's processes; its objects are what the garbage collector then walks.
_MADE_OF = ("python", "compute", "launch", "blocked_io", "gc", "descheduled", "unknown")


class CompileWarmup:
    id = "TP402"
    slug = "compile-warmup"
    limits = Limits(limit("compile_share"), None)
    needs: tuple[str, ...] = ("hook_compile",)

    def check(self, facts: Facts) -> Outcome:
        table = facts.run.steps
        total = int(table.compile_ns.sum())
        if not total or facts.share(total) < self.limits.warn:
            return None
        rows = table.compile_ns > 0
        spans = facts.run.spans("compile")
        steps = len({s.step for s in spans if s.step >= 0}) or int(rows.sum())
        late = _late(facts, spans)
        late_ns = min(total, sum(s.end_ns - s.start_ns for s in spans if s.step in late))
        often = steps > limit("recompile_steps") and facts.share(total) >= limit("warn_share")
        again = often or (len(late) > 1 and facts.share(late_ns) >= limit("warn_share"))
        severity: Severity = "warning" if again else "info"
        first = int(table.index[rows][0])
        claims: dict[Cell, int] = {}
        of_cause: dict[str, int] = {}
        for cause in _MADE_OF:
            column = table.causes_ns[rows, CAUSES.index(cause)].astype(float)
            part = table.compile_ns[rows] / table.wall_ns[rows].clip(min=1)
            of_cause[cause] = int((column * part.clip(max=1)).sum())
            claims |= loaders.spread(facts.cells(cause), of_cause[cause])
        return facts.finding(
            (self.id, self.slug),
            role="once",
            severity=severity,
            # Inductor compiles in processes of its own: then the training thread waits, and the time is blocked_io.
            cause=max(_MADE_OF, key=of_cause.__getitem__),
            claims=claims,
            by_device=False,
            title=_title(often, late),
            affected=steps,
            confidence=facts.confidence(),
            evidence=(
                f"{ms(total)} of compiling in {steps:,} of {facts.steps:,} steps, "
                f"{facts.share(total):.0%} of step time",
                f"first in step {first:,}",
                f"long after it again: {ms(late_ns)} in {_listed(late)}" if late else "",
                "steps that compile are kept out of the median",
            ),
            who=(facts.step_thread_name,),
            why=f"compiling took {ms(total)} in {steps:,} of {facts.steps:,} steps",
            fix=_fix(facts, late)
            if again or late
            else f"{NOTHING}; between runs the cache helps: TORCHINDUCTOR_CACHE_DIR",
            fix_share=1.0 if often else late_ns / total,
            will_not_help="faster data or a larger batch",
        )


def _late(facts: Facts, spans: Sequence[Span]) -> list[int]:
    """The steps that compiled long after the warm-up; the first validation has a warm-up of its own."""
    table = facts.run.steps
    validates = set(table.index[(table.flags & HAS_VALIDATION) != 0].tolist())
    steps = sorted({s.step for s in spans if s.step >= 0})
    late, seen_validation = [], False
    for before, step in itertools.pairwise(steps):
        first_validation = step in validates and not seen_validation
        seen_validation = seen_validation or step in validates
        if step - before > limit("recompile_gap_steps") and not first_validation:
            late.append(step)
    return late


def _title(often: bool, late: Sequence[int]) -> str:
    if often:
        return "torch.compile compiles again and again"
    if late:
        return f"torch.compile compiles again in {_listed(late)}"
    return "torch.compile warmed up"


def _listed(steps: Sequence[int]) -> str:
    """ "step 60", "steps 60 and 125", "steps 60, 125, 190 and 5 more"."""
    shown = [f"{s:,}" for s in steps[:_SHOWN]]
    more = [f"{len(steps) - _SHOWN} more"] if len(steps) > _SHOWN else []
    words = [*shown, *more]
    text = words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
    return f"step{'s' if len(steps) > 1 else ''} {text}"


def _fix(facts: Facts, late: Sequence[int]) -> str:
    why = f"{facts.command('TORCH_LOGS=recompiles')}  # says why"
    if not late:
        return f"{why}; then: torch.compile(model, dynamic=True)"
    return (
        "model = torch.compile(model, dynamic=True)  # where shapes vary\n"
        f"torch._dynamo.mark_dynamic(inputs, 1)  # or only the dimension that varies, on each batch\n{why}"
    )
