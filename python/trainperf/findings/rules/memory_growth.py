"""TP601: the process' memory grows steadily, step by step: something keeps what each step makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trainperf.findings.facts import plural, size
from trainperf.findings.model import Abstained, Limits, Outcome
from trainperf.findings.thresholds import limit
from trainperf.findings.trend import trend

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts


class MemoryGrowth:
    id = "TP601"
    slug = "memory-growth"
    limits = Limits(limit("memory_growth_share"), None)  # of memory, not of time
    needs: tuple[str, ...] = ()

    def check(self, facts: Facts) -> Outcome:
        if facts.of_trace:
            return Abstained(self.id, self.slug, "a trace has no readings of memory")
        table = facts.run.steps
        start, end = int(table.start_ns[0]), int(table.start_ns[-1] + table.wall_ns[-1])
        readings = [h for h in facts.run.host if start <= h.at_ns <= end and h.rss_bytes > 0]
        if len(readings) < limit("memory_min_readings"):
            why = f"{plural(len(readings), 'reading')} of memory while steps ran, one a second, are too few: run longer"
            return Abstained(self.id, self.slug, why)
        # Caches fill and allocators settle in the first steps.
        kept = readings[len(readings) // 4 :]
        seconds = np.array([(h.at_ns - kept[0].at_ns) / 1e9 for h in kept])
        held = np.array([float(h.rss_bytes) for h in kept])
        grows = trend(seconds, held)
        base = float(np.median(held[: max(2, len(held) // 4)]))
        least = max(limit("memory_growth_share") * base, limit("memory_growth_bytes"))
        if not grows.steady or grows.rise < least:
            return None
        step_s = facts.wall_ns / facts.steps / 1e9
        room = facts.number("memory_limit") - held[-1]
        left = room / grows.per_second if room > 0 else 0.0
        soon = 0 < left < (end - start) / 1e9 and facts.steps >= limit("critical_min_steps")
        return facts.finding(
            (self.id, self.slug),
            severity="critical" if soon else "warning",
            cause="",
            claims={},
            by_device=False,
            title=f"the process' memory grows by {size(grows.per_second * step_s)} a step",
            confidence=("high" if len(kept) >= limit("memory_good_readings") else "medium", f"{len(kept):,} readings"),
            evidence=(
                f"from {size(held[0])} to {size(held[-1])} in {seconds[-1]:.0f} s: "
                f"{size(grows.per_second * 60)} a minute",
                f"steady over {plural(len(kept), 'reading')} (the run's first quarter left out), mapped files not "
                "counted",
                f"at this pace the {size(facts.number('memory_limit'))} that it may have are full in {_time(left)}"
                if left
                else "",
            ),
            who=(facts.step_thread_name,),
            why="something keeps what each step makes (what, was not seen): a list of tensors, a cache, a log",
            fix="# find what is kept from step to step, a list of tensors, a cache, a log:\n"
            "losses.append(loss.item())  # where it is losses: a kept loss keeps its whole graph",
            will_not_help="gc.collect(), torch.cuda.empty_cache(): what is referenced stays; more memory: it fills",
        )


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.0f} hours" if seconds < 172800 else f"{seconds / 86400:.0f} days"
