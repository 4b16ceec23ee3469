"""TP402: torch.compile compiled during the run. A warm-up is said; compiling again and again is warned of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings import loaders
from trainperf.findings.facts import ms
from trainperf.findings.model import Cell, Limits, Outcome, Severity
from trainperf.findings.text import NOTHING
from trainperf.findings.thresholds import limit
from trainperf.findings.vocabulary import CAUSES

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts


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
        again = steps > limit("recompile_steps") and facts.share(total) >= limit("warn_share")
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
            severity=severity,
            # Inductor compiles in processes of its own: then the training thread waits, and the time is blocked_io.
            cause=max(_MADE_OF, key=of_cause.__getitem__),
            claims=claims,
            by_device=False,
            title="torch.compile compiles again and again" if again else "torch.compile warmed up",
            affected=steps,
            confidence=facts.confidence(),
            evidence=(
                f"{ms(total)} of compiling in {steps:,} of {facts.steps:,} steps, "
                f"{facts.share(total):.0%} of step time",
                f"first in step {first:,}",
                "steps that compile are kept out of the median",
            ),
            who=(facts.step_thread_name,),
            why=f"compiling took {ms(total)} in {steps:,} of {facts.steps:,} steps",
            fix=f"{facts.command('TORCH_LOGS=recompiles')}  # says why; then: torch.compile(model, dynamic=True)"
            if again
            else f"{NOTHING}; between runs the cache helps: TORCHINDUCTOR_CACHE_DIR",
            fix_share=1.0 if again else 0.0,
            will_not_help="faster data or a larger batch",
        )
