"""TP403: the run is slower than the last ones of its name on this host."""

from __future__ import annotations

import math
import os
import shlex
import statistics
from typing import TYPE_CHECKING

import numpy as np

from trainperf.comparison.bootstrap import draw, ratio_interval, replicates
from trainperf.findings.cpu_use import cpu_use, usable_cpus
from trainperf.findings.facts import ms, plural
from trainperf.findings.model import Abstained, Limits, Outcome
from trainperf.findings.thresholds import limit
from trainperf.findings.vocabulary import CAUSES, MACHINE
from trainperf.runfile import WARM_UP

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.runfile import Int64Array

_CLOCKED = ("compute", "launch", "python")  # what a slower clock makes longer
_TO_SIGMA = 1.4826  # median absolute deviation -> standard deviation, of a normal distribution


class SlowerThanBefore:
    id = "TP403"
    slug = "slower-than-before"
    limits = Limits(limit("history_slower"), None)
    needs: tuple[str, ...] = ()

    def check(self, facts: Facts) -> Outcome:
        text = facts.run.meta.get("history")
        if text is None:
            return None  # a run without a name, or without a folder, has no earlier ones
        from trainperf.history import Past

        known = Past.parse(text)
        name = facts.run.meta.get("name", "")
        size = facts.run.batch_size or 0
        past = [p for p in known if not (p.batch_size and size) or p.batch_size == size]
        least = int(limit("history_min_runs"))
        if len(past) < least:
            other = f" (and {len(known) - len(past)} of another batch size)" if len(known) > len(past) else ""
            are = f"{plural(len(past), 'earlier run')} of the name {name} on this host{other}"
            return Abstained(self.id, self.slug, f"{are}: {least} are the least")
        table = facts.run.steps
        keep = (table.flags & WARM_UP) == 0
        steps = int(table.count[keep].sum())
        if steps < limit("compare_min_steps"):
            return Abstained(self.id, self.slug, f"{plural(steps, 'step')} beside the warm-up: too few")
        median = facts.run.wall_ms_quantile(0.5)
        mean = {c: float(table.causes_ns[keep, i].sum()) / steps / 1e6 for i, c in enumerate(CAUSES)}
        more = limit("history_slower") + self._allowance(facts)
        # By the typical step, and by the mean without what the machine took: a busy machine alone is not the program.
        both = (
            (median, [p.median_ms for p in past]),
            (_loop(mean), [_loop({c: p.causes.get(c, 0.0) for c in CAUSES}) for p in past]),
        )
        if not all(_slower(now, before, more) for now, before in both):
            return None
        lasted = min(steps * both[1][0] / 1e3, *(p.steps * p.mean_ms / 1e3 for p in past))
        short = lasted < limit("compare_long_run")
        usual_loop = statistics.median(both[1][1])
        if not _told_by_compare(table.causes_ns[keep], table.count[keep], usual_loop, short=short):
            return Abstained(self.id, self.slug, "its steps vary too much to call it slower than the earlier runs")
        usual = statistics.median(p.median_ms for p in past)
        grown = {c: mean[c] - statistics.median(p.causes.get(c, 0.0) for p in past) for c in CAUSES}
        if short and _clock_alone(mean, grown):
            why = f"the shortest run lasted {lasted:.1f} s: another clock or neighbour alone can do this"
            return Abstained(self.id, self.slug, why)
        last = os.path.join(os.path.dirname(facts.run.path), past[0].file)
        cause = max(grown, key=lambda c: grown[c])
        return facts.finding(
            (self.id, self.slug),
            severity="warning",
            cause=cause,
            claims={},
            title=f"{median / usual - 1:.0%} slower than its last {len(past)} runs",
            affected=facts.steps,
            confidence=facts.confidence(),
            evidence=(
                f"median step {ms(median * 1e6)}; of the last {len(past)} runs called {name} on this host: "
                + ", ".join(f"{p.median_ms:.3g}" for p in reversed(past)),
                f"{cause} takes {ms(mean[cause] * 1e6)} a step; usually "
                f"{ms(statistics.median(p.causes.get(cause, 0.0) for p in past) * 1e6)}",
            ),
            why=f"{cause} takes {ms(grown[cause] * 1e6)} a step more than it used to",
            fix=f"# what changed since then?\ntrainperf compare {shlex.quote(last)} {shlex.quote(facts.run.path)}",
            will_not_help="",
        )

    @staticmethod
    def _allowance(facts: Facts) -> float:
        """For a machine that others use now, and may not have used then."""
        use = cpu_use(facts.run)
        if use is None:
            return limit("compare_between_busy_runs")
        return limit("compare_per_busy_machine") * min(1.0, use.others / max(1, usable_cpus(facts.run)))


def _loop(causes: dict[str, float]) -> float:
    return sum(ms for cause, ms in causes.items() if cause not in MACHINE)


def _told_by_compare(causes_ns: Int64Array, count: Int64Array, usual_ms: float, *, short: bool) -> bool:
    """Whether the loop's mean is above the earlier runs' by more than `trainperf compare` allows for chance: its
    bootstrap of blocks, widened by what two runs of one program differ by."""
    columns = [i for i, cause in enumerate(CAUSES) if cause not in MACHINE]
    sums = (causes_ns[:, columns].sum(axis=1) / 1e6).astype(float)[:, None]
    counts = count.astype(float)
    now = float(sums.sum() / counts.sum())
    if min(now, usual_ms) <= 0:
        return False
    drawn = replicates(sums, counts, draw(0))
    between = limit("compare_between_busy_runs" if short else "compare_between_runs")
    usual = np.full_like(drawn[:, 0], usual_ms)
    return ratio_interval(usual, drawn[:, 0], math.log(now / usual_ms), between)[0] > 0


def _clock_alone(mean: dict[str, float], grown: dict[str, float]) -> bool:
    """As compare asks it of short runs: work on the CPU alone takes longer, by no more than a clock can do."""
    now = sum(mean[c] for c in _CLOCKED)
    more = sum(grown[c] for c in _CLOCKED)
    if more <= 0 or now - more <= 0 or now > (1 + limit("compare_machine_state")) * (now - more):
        return False
    others = sum(max(0.0, ms) for c, ms in grown.items() if c not in (*_CLOCKED, *MACHINE))
    return others <= limit("warn_share") * more


def _slower(now: float, before: list[float], more: float) -> bool:
    """Than all of them, and by more than they differ among themselves."""
    usual = statistics.median(before)
    spread = _TO_SIGMA * statistics.median(abs(value - usual) for value in before)
    return now > max(before) and now - usual >= max(3 * spread, more * usual)
