"""TP601: the process' memory grows steadily, step by step: something keeps what each step makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trainperf.findings.facts import plural, size
from trainperf.findings.model import Abstained, Limits, Outcome
from trainperf.findings.thresholds import limit
from trainperf.findings.trend import trend
from trainperf.findings.vocabulary import CAUSES

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts

_WORK = ("compute", "python", "gpu_wait", "launch")  # what a step makes is made by these


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
        works = _works_more(facts, kept[0].at_ns, kept[-1].at_ns)
        late = float(np.median(held[-max(2, len(held) // 4) :]))
        # What a step makes grows no faster than the work that makes it.
        by_work = works - 1 >= limit("half_share") * (late / base - 1)
        short = len(kept) < limit("memory_good_readings") or facts.steps < limit("critical_min_steps")
        soon = 0 < left < (end - start) / 1e9
        count = f"{len(kept):,} readings"
        doubt = (
            f"the steps take {works:.1f} times the work by then: longer inputs may need more memory with nothing kept"
            if by_work
            else f"{count} in {plural(facts.steps, 'step')}: so early it may be the allocator, which settles"
            if short
            else ""
        )
        kept_by = "something keeps what each step makes (what, was not seen): a list of tensors, a cache, a log"
        return facts.finding(
            (self.id, self.slug),
            severity="info" if doubt else "critical" if soon else "warning",
            cause="",
            claims={},
            by_device=False,
            title=f"the process' memory grows by {size(grows.per_second * step_s)} a step"
            + (", as the steps' work does" if by_work else ", so far" if short else ""),
            confidence=("low", doubt) if doubt else ("high", count),
            evidence=(
                f"from {size(held[0])} to {size(held[-1])} in {seconds[-1]:.0f} s: "
                f"{size(grows.per_second * 60)} a minute",
                f"steady over {plural(len(kept), 'reading')} (the run's first quarter left out), mapped files not "
                "counted",
                f"at this pace the {size(facts.number('memory_limit'))} that it may have are full in {_time(left)}"
                if left and not doubt
                else "",
            ),
            who=(facts.step_thread_name,),
            why=f"the inputs grow, or {kept_by}"
            if by_work
            else f"the allocator still settles, or {kept_by}"
            if short
            else kept_by,
            fix=("# run for some minutes: what settles stops; where it grows on\n" if doubt else "")
            + "# find what is kept from step to step, a list of tensors, a cache, a log:\n"
            "losses.append(loss.item())  # where it is losses: a kept loss keeps its whole graph",
            will_not_help="gc.collect(), torch.cuda.empty_cache(): what is referenced stays; more memory: it fills",
        )


def _works_more(facts: Facts, start_ns: int, end_ns: int) -> float:
    """How many times as much work (waits left out) the median step of the last quarter of this time is, as of the
    first; 1 where a quarter has no step."""
    table = facts.run.steps
    work = table.causes_ns[:, [CAUSES.index(cause) for cause in _WORK]].sum(axis=1) / table.count
    quarter = (end_ns - start_ns) / 4
    early = work[(table.start_ns >= start_ns) & (table.start_ns < start_ns + quarter)]
    late = work[(table.start_ns >= end_ns - quarter) & (table.start_ns < end_ns)]
    before = float(np.median(early)) if len(early) else 0.0
    return float(np.median(late)) / before if len(late) and before else 1.0


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.0f} hours" if seconds < 172800 else f"{seconds / 86400:.0f} days"
