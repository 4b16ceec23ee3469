"""TP401: a part of the run is slower than the rest; which part, and which cause explains it."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trainperf.findings import loaders
from trainperf.findings.cpu_use import cpu_use, usable_cpus, used_beside
from trainperf.findings.facts import ms, plural
from trainperf.findings.model import Abstained, Cell, Limits, Outcome
from trainperf.findings.thresholds import limit
from trainperf.findings.vocabulary import CAUSES
from trainperf.runfile import HAS_CHECKPOINT, HAS_LOADER_START, HAS_VALIDATION, WARM_UP

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts

_BINS = 24
_LEAST, _MOST = 0.1, 0.6  # of the run, that is a stretch
_SHUFFLES = 999  # random orders that the steps' own is held against
_SKIP = WARM_UP | HAS_VALIDATION | HAS_CHECKPOINT | HAS_LOADER_START  # slow for a reason of their own
_ON_CPU = ("python", "compute")  # as fast as the CPU is
_HINTS = {
    "gil_wait": "look for a thread that runs Python in that part: a prefetch, a preload, an upload",
    "data_wait": "cold caches, or larger samples in that part: warm the cache, or shuffle",
    "descheduled": "something else used the CPUs then: a start-up, a preprocessing job",
    "throttled": "the quota was used up then",
    "python": "the loop's own code does more then",
    "blocked_io": "the loop waited for a lock, a file or the network then",
    "gpu_wait": "the GPU has more to do then (longer inputs, larger batches), or takes longer for the same (its clock)",
    "compute": "more work then (longer inputs or lists, larger batches), or the same on slower CPUs (clock, caches)",
}


@dataclass(frozen=True, slots=True)
class _Slow:
    first: int  # rows
    end: int
    inside_ns: float  # median step
    outside_ns: float

    @property
    def ratio(self) -> float:
        return self.inside_ns / self.outside_ns if self.outside_ns else 0.0


def find_slow_part(wall: npt.NDArray[np.float64]) -> _Slow | None:
    """The stretch of 10 to 60 % of the steps that costs most by being slower than the rest, or None.

    Of medians of bins, so that single slow steps do not make one.
    """
    n = len(wall)
    bins = min(_BINS, n // 5)
    if bins < 6:
        return None
    edges = np.linspace(0, n, bins + 1).astype(int)
    medians = np.array([np.median(wall[a:b]) for a, b in itertools.pairwise(edges)])
    best: tuple[float, int, int] | None = None
    for i in range(bins):
        for j in range(i + max(1, round(_LEAST * bins)), min(bins, i + int(_MOST * bins)) + 1):
            inside = medians[i:j]
            outside = np.concatenate([medians[:i], medians[j:]])
            base = float(np.median(outside))
            # Nearly every bin inside is slower than nearly every bin outside.
            if np.percentile(inside, 20) < limit("uneven_ratio") * base or np.percentile(inside, 20) < np.percentile(
                outside, 90
            ):
                continue
            # Bins that are no slower than the rest count against a stretch, so that its ends are tight.
            gain = float((inside - base * (1 + limit("uneven_ratio")) / 2).sum())
            if best is None or gain > best[0]:
                best = (gain, i, j)
    if best is None:
        return None
    a, b = int(edges[best[1]]), int(edges[best[2]])
    rest = np.concatenate([wall[:a], wall[b:]])
    return _Slow(a, b, float(np.median(wall[a:b])), float(np.median(rest)))


def by_chance(wall: npt.NDArray[np.float64], slow: _Slow) -> float:
    """How often steps of these lengths, in random order, have a stretch of 10 to 60 % that stands out as much: by the
    ranks of the steps in it, so that single slow steps do not make one. The same for the same steps."""
    n = len(wall)
    edges = np.linspace(0, n, min(_BINS, n // 5) + 1).astype(int)
    starts, ends = np.triu_indices(len(edges), 1)
    lengths = edges[ends] - edges[starts]
    fits = (lengths >= _LEAST * n) & (lengths <= _MOST * n)
    starts, ends, lengths = starts[fits], ends[fits], lengths[fits]
    ranks = np.argsort(np.argsort(wall)) - (n - 1) / 2
    spread = np.sqrt(lengths * (n - lengths))
    size = slow.end - slow.first
    found = ranks[slow.first : slow.end].sum() / np.sqrt(size * (n - size))
    # Hoeffding's bound, which holds for draws without replacement: mostly it says enough.
    if found > 0 and len(starts) * math.exp(-found * found / n) * (1 + _SHUFFLES) < 1:
        return 1 / (1 + _SHUFFLES)
    rng = np.random.default_rng(0)
    as_much = 0
    for _ in range(_SHUFFLES):
        sums = np.concatenate([[0.0], np.cumsum(rng.permutation(ranks))])[edges]
        as_much += bool(((sums[ends] - sums[starts]) / spread).max() >= found)
    return (1 + as_much) / (1 + _SHUFFLES)


def tightened(slow: _Slow, wall: npt.NDArray[np.float64], cause: npt.NDArray[np.float64]) -> _Slow | None:
    """The same stretch with its ends where the cause begins and ends, which is sharper than the steps' length is: other
    things make steps longer or shorter too. None where the cause is in so few of its steps that they are no stretch.
    `cause`: its ns in each step."""
    rest = np.concatenate([cause[: slow.first], cause[slow.end :]])
    over = cause - (cause[slow.first : slow.end].mean() + rest.mean()) / 2
    sums = np.concatenate([[0.0], np.cumsum(over)])  # the stretch of the largest sum: ends at the largest rise
    lowest = np.minimum.accumulate(sums)
    end = int(np.argmax(sums - lowest))
    first = int(np.argmin(sums[: end + 1]))
    shared = min(end, slow.end) - max(first, slow.first)
    inside = (
        shared >= 0.5 * (end - first)
        and cause[first:end].sum() >= limit("held_share") * cause[slow.first : slow.end].sum()
    )
    if (shared < 0.5 * (slow.end - slow.first) and not inside) or end - first == len(wall):
        return slow
    if inside and end - first < _LEAST * len(wall):
        return None
    rest = np.concatenate([wall[:first], wall[end:]])
    found = _Slow(first, end, float(np.median(wall[first:end])), float(np.median(rest)))
    return found if found.ratio >= limit("uneven_ratio") else slow


def _grows(facts: Facts) -> bool:
    """Whether the steps grow by so much that the end of the run is slow because of it."""
    return facts.grown is not None and facts.loop_share(facts.grown.excess_ns) >= limit("warn_share")


class Uneven:
    id = "TP401"
    slug = "uneven"
    limits = Limits(limit("uneven_warn_share"), limit("critical_share"))
    needs: tuple[str, ...] = ()

    def check(self, facts: Facts) -> Outcome:
        if facts.steps < limit("uneven_min_steps"):
            are = "is" if facts.steps == 1 else "are"
            return Abstained(
                self.id, self.slug, f"{plural(facts.steps, 'step')} {are} too few to compare parts of the run"
            )
        table = facts.run.steps
        merged = bool((table.count > 1).any())
        # A merged row's flags are or-ed over its steps, and would leave nothing to look at.
        keep = np.ones(len(table.count), bool) if merged else (table.flags & _SKIP) == 0
        if keep.sum() < limit("uneven_min_steps"):
            return None
        count = table.count[keep].astype(np.float64)
        wall = table.wall_ns[keep] / count
        slow = find_slow_part(wall)
        if slow is None or slow.ratio < limit("uneven_ratio"):
            return None
        if _grows(facts) and slow.end >= (1 - _LEAST) * len(wall):
            return None  # TP404 reports it
        if by_chance(wall, slow) > limit("uneven_chance"):
            first, last = self._steps(table.index[keep], count, slow)
            why = f"steps differ as much in random order: steps {first:,} to {last:,} may be slower by chance"
            return Abstained(self.id, self.slug, why)
        causes = table.causes_ns[keep]
        mean_in, mean_out = self._means(causes, count, slow)
        top = int(np.argmax(mean_in - mean_out))
        cause = CAUSES[top]
        if cause not in ("compute", "descheduled"):
            tight = tightened(slow, wall, causes[:, top] / count)
            if tight is None:
                return None
            slow = tight
            mean_in, mean_out = self._means(causes, count, slow)
        if by_machine := self._may_be_the_machine(table.index[keep], count, wall, slow, cause):
            return Abstained(self.id, self.slug, by_machine)
        change = mean_in - mean_out
        steps_in = int(count[slow.first : slow.end].sum())
        excess = int((slow.inside_ns - slow.outside_ns) * steps_in)
        severity = facts.grade(excess, self.limits)
        if severity is None:
            return None
        if change[top] < limit("uneven_explained") * (slow.inside_ns - slow.outside_ns):
            first, last = self._steps(table.index[keep], count, slow)
            return Abstained(self.id, self.slug, f"no cause explains why steps {first:,} to {last:,} are slower")
        busier = self._busier(facts, table.start_ns[keep], table.wall_ns[keep], slow) if cause in _ON_CPU else ""
        if busier or cause in ("compute", "gpu_wait", "descheduled"):
            severity = "info"  # larger inputs, or a busier machine: nothing in the loop is wrong
        first, last = self._steps(table.index[keep], count, slow)
        grown = max(1.0, float(change.clip(min=0).sum()))
        # Of what is a part of the difference alone, nobody is told that the rest would go with it.
        mostly = change[top] >= limit("most_share") * grown
        because = f", because of {cause}" if mostly else f"; {cause} is {change[top] / grown:.0%} of the difference"
        claims: dict[Cell, int] = loaders.spread(facts.cells(cause), min(excess, int(change[top] * steps_in)))
        part = self._part(first, last, int(table.index[-1] + table.count[-1]))
        holders = facts.holders() if cause == "gil_wait" and not facts.off("gil_waits") else []
        spot = holders[0].spot if holders else None
        who = holders[0].name if holders else ""
        hint = _HINTS.get(cause, f"look at {cause} in steps {first:,} to {last:,}")
        if busier:
            hint = f"it may be CPUs that others use, which are slower (caches, clock); or {hint}"
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause=cause,
            claims=claims,
            by_device=False,
            title=f"{part} runs {slow.ratio:.1f} times slower than the rest{because}",
            affected=steps_in,
            confidence=facts.confidence(doubts=("it may be the machine",) if busier else ()),
            evidence=(
                f"steps {first:,} to {last:,}: median {ms(slow.inside_ns)}; the others: {ms(slow.outside_ns)}",
                f"{cause} is {change[top] / grown:.0%} of the difference",
                busier,
                f"at the others' pace the run would take {ms(excess)} less ({facts.share(excess):.0%})",
            ),
            who=(who or facts.step_thread_name,),
            where=facts.where(spot),
            why=f"in steps {first:,} to {last:,} {cause} takes {ms(mean_in[top])} a step, elsewhere {ms(mean_out[top])}"
            + (f" ({who} in {facts.label(spot)})" if spot is not None else ""),
            fix=f"# {hint}",
            by_others=bool(busier),
            finds_out=True,
            will_not_help="what speeds up every step alike: that part stays slower than the rest",
        )

    @staticmethod
    def _means(
        causes: npt.NDArray[np.int64], count: npt.NDArray[np.float64], slow: _Slow
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Of each cause per step: in the stretch, and in the rest."""
        rest = np.ones(len(count), bool)
        rest[slow.first : slow.end] = False
        inside = causes[~rest].sum(axis=0) / float(count[~rest].sum())
        return inside, causes[rest].sum(axis=0) / max(1.0, float(count[rest].sum()))

    @staticmethod
    def _steps(index: npt.NDArray[np.int64], count: npt.NDArray[np.float64], slow: _Slow) -> tuple[int, int]:
        """The first and the last of the stretch; a row may be several."""
        return int(index[slow.first]), int(index[slow.end - 1] + count[slow.end - 1] - 1)

    def _may_be_the_machine(
        self,
        index: npt.NDArray[np.int64],
        count: npt.NDArray[np.float64],
        wall: npt.NDArray[np.float64],
        slow: _Slow,
        cause: str,
    ) -> str:
        """Why a short stretch is not told: others slow down a CPU's caches and clock for such a time. "" where it is
        long enough, or is of waits for the GIL: that is held by a thread of this process, whatever the machine does."""
        if cause == "gil_wait":
            return ""
        seconds = float((wall * count)[slow.first : slow.end].sum()) / 1e9
        least = limit("uneven_min_s") * (2 if cause in _ON_CPU else 1)
        if seconds >= least:
            return ""
        first, last = self._steps(index, count, slow)
        return f"steps {first:,} to {last:,} are slower for {seconds:.1f} s only: it may be the machine, run longer"

    @staticmethod
    def _busier(facts: Facts, start_ns: npt.NDArray[np.int64], wall_ns: npt.NDArray[np.int64], slow: _Slow) -> str:
        """That other processes used notably more of the CPUs in that stretch, which may be why what computes there
        takes longer; "" where they did not, may have been this one's own, or it takes longer than that explains."""
        used, run = cpu_use(facts.run), facts.run
        if used is None or slow.ratio > limit("shared_cpu_ratio") or facts.number("world_size") > 1:
            return ""
        if "children_cpu_after_ns" not in run.meta or used.elsewhere:
            return ""
        end_ns = start_ns + wall_ns
        begin, end = int(start_ns[slow.first]), int(end_ns[slow.end - 1])
        inside = used_beside(run, [(begin, end)])
        outside = used_beside(run, [(int(start_ns[0]), begin), (end, int(end_ns[-1]))])
        if inside is None or outside is None:
            return ""
        # All that its own used, as if in that stretch.
        others = inside - (used.workers + used.children) * run.watched_ns / (end - begin)
        if others - outside < limit("busier_share") * max(1, usable_cpus(run)):
            return ""
        return f"other processes used {inside:.1f} CPUs then, and {outside:.1f} in the rest of the run"

    @staticmethod
    def _part(first: int, last: int, total: int) -> str:
        """ "the first third", or the steps themselves."""
        length = last - first + 1
        names = ((1 / 2, "half"), (1 / 3, "third"), (1 / 4, "quarter"), (1 / 5, "fifth"), (1 / 10, "tenth"))
        for share, name in names:
            if abs(length / total - share) < 0.05:
                if first < 0.05 * total:
                    return f"the first {name} of the run"
                if last >= 0.95 * total:
                    return f"the last {name} of the run"
        return f"the stretch of steps {first:,} to {last:,}"
