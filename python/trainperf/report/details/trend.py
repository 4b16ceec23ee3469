"""How the step time went over the run: where its level changed and why, whether it drifts, the warm-up."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from trainperf.findings.text import plural
from trainperf.report.svg.base import duration
from trainperf.runfile import HAS_CHECKPOINT, HAS_LOADER_START, HAS_VALIDATION, WARM_UP
from trainperf.runfile.schema import CAUSES

if TYPE_CHECKING:
    from trainperf.run import Run
    from trainperf.runfile.records import Int64Array

FloatArray = npt.NDArray[np.float64]

SKIP: Final = WARM_UP | HAS_VALIDATION | HAS_CHECKPOINT | HAS_LOADER_START  # slow for a reason of their own
_BINS = 96
_LEAST_STEPS = 24
_LEAST_CHANGE = 0.10  # of the lower level: less is seen on no chart
_SURE = 6.0  # times what noise alone gives (Bayesian information criterion's log n is times this)
_MOST_LEVELS = 5
_STEADY = 0.25


@dataclass(frozen=True, slots=True)
class Level:
    """Steps first .. last, whose usual step took median_ms."""

    first: int
    last: int
    median_ms: float


@dataclass(frozen=True, slots=True)
class Trend:
    levels: tuple[Level, ...]  # more than one: the level changed
    sentences: tuple[str, ...]


def trend(run: Run) -> Trend:
    table = run.steps
    sentences = _warm_up(run)
    merged = bool(len(table.count)) and int(table.count.max()) > 1
    # A merged row's flags are or-ed over its steps, and would leave nothing to look at.
    keep = np.ones(len(table.count), bool) if merged else (table.flags & SKIP) == 0
    steps = int(table.count[keep].sum())
    if keep.sum() < _LEAST_STEPS:
        few = f"{plural(steps, 'step')} without warm-up, checkpoints and validation: too few for a trend."
        return Trend((), (*sentences, few) if run.step_count else ())
    wall = table.wall_ns[keep] / table.count[keep] / 1e6
    cuts = changes(wall)
    index, count = table.index[keep], table.count[keep]
    causes = table.causes_ns[keep] / 1e6
    bounds = [0, *cuts, len(wall)]
    levels = tuple(
        Level(
            int(index[a]) if a else int(table.index[0]),
            int(index[b] - 1) if b < len(wall) else int(table.index[-1] + table.count[-1] - 1),
            float(np.median(wall[a:b])),
        )
        for a, b in itertools.pairwise(bounds)
    )
    for i, (before, after) in enumerate(itertools.pairwise(levels)):
        a, b, c = bounds[i : i + 3]
        sentences = (*sentences, _change(before, after, _why(causes, count, a, b, c)))
    if len(levels) == 1:
        sentences = (*sentences, _drift(wall))
    return Trend(levels, sentences)


def changes(wall: FloatArray) -> list[int]:
    """Rows at which the level changes: the best splits of the bins' means, as long as they beat the noise.

    Not of their medians, which flip where steps are of two kinds; single long steps are cut down instead.
    """
    bins = min(_BINS, len(wall) // 4)
    edges = np.linspace(0, len(wall), bins + 1).astype(int)
    cut_down = np.minimum(wall, 1.25 * np.quantile(wall, 0.95))
    means = np.add.reduceat(cut_down, edges[:-1]) / np.diff(edges)
    noise = 1.4826 * float(np.median(np.abs(np.diff(means)))) / math.sqrt(2)
    noise = max(noise, 0.01 * float(np.median(means)))
    cuts: list[int] = []
    open_parts = [(0, bins)]
    while open_parts and len(cuts) < _MOST_LEVELS - 1:
        found = [(gain, cut, part) for part in open_parts for gain, cut in [_split(means, *part)] if cut]
        found = [f for f in found if f[0] > _SURE * noise**2 * math.log(bins)]
        if not found:
            break
        _, cut, part = max(found)
        open_parts.remove(part)
        open_parts += [(part[0], cut), (cut, part[1])]
        cuts.append(cut)
    rows = [_exactly(wall, edges, cut) for cut in sorted(cuts)]
    return _large(wall, sorted(set(rows)))


def _split(values: FloatArray, first: int, end: int) -> tuple[float, int]:
    """By how much the best cut lowers the sum of squares, and where it is; 0 when there is none."""
    least = max(2, round(0.06 * len(values)))
    best = (0.0, 0)
    part = np.cumsum(values[first:end])
    n, whole = end - first, float(part[-1])
    for k in range(least, n - least + 1):
        left = float(part[k - 1])
        gain = k * (n - k) / n * (left / k - (whole - left) / (n - k)) ** 2
        if gain > best[0]:
            best = (gain, first + k)
    return best


def _exactly(wall: FloatArray, edges: Int64Array, cut: int) -> int:
    """The row near the cut that parts best: steps before it are nearer to the level before, others to the next."""
    low, high = int(edges[max(0, cut - 2)]), int(edges[min(len(edges) - 1, cut + 2)])
    at = int(edges[cut])
    before, after = float(np.median(wall[low:at])), float(np.median(wall[at:high]))
    # The cut with the least sum of absolute distances: one odd step does not move it.
    distance_before = np.abs(wall[low:high] - before).cumsum()
    distance_after = np.abs(wall[low:high] - after)[::-1].cumsum()[::-1]
    cost = distance_before[:-1] + distance_after[1:]
    return low + 1 + int(np.argmin(cost)) if len(cost) else at


def _large(wall: FloatArray, cuts: list[int]) -> list[int]:
    """Without the cuts that change too little, the least first."""
    cuts = [c for c in cuts if 0 < c < len(wall)]
    while cuts:
        bounds = [0, *cuts, len(wall)]
        medians = [float(np.median(wall[a:b])) for a, b in itertools.pairwise(bounds)]
        sizes = [abs(a - b) / max(1e-9, min(a, b)) for a, b in itertools.pairwise(medians)]
        least = int(np.argmin(sizes))
        if sizes[least] >= _LEAST_CHANGE:
            break
        del cuts[least]
    return cuts


def _why(causes: FloatArray, count: Int64Array, a: int, b: int, c: int) -> str:
    """ "mostly gil_wait (-8.8 ms)": what changed most between rows a .. b and b .. c."""
    change = causes[b:c].sum(axis=0) / count[b:c].sum() - causes[a:b].sum(axis=0) / count[a:b].sum()
    top = int(np.argmax(np.abs(change)))
    if abs(change[top]) < 0.3 * abs(change).sum():
        return "in several causes"
    return f"mostly {CAUSES[top]} ({'+' if change[top] > 0 else '−'}{duration(abs(float(change[top])))})"


def _change(before: Level, after: Level, why: str) -> str:
    ratio = after.median_ms / max(1e-9, before.median_ms)
    if ratio >= 1.5 or ratio <= 1 / 1.5:
        factor = f"{max(ratio, 1 / ratio):.1f} times {'slower' if ratio > 1 else 'faster'}"
    else:
        factor = f"{abs(ratio - 1):.0%} {'more' if ratio > 1 else 'less'}"
    return (
        f"Steps {before.first:,} to {before.last:,} took {duration(before.median_ms)} each, steps {after.first:,} to "
        f"{after.last:,} took {duration(after.median_ms)}: {factor} from then on, {why}."
    )


def _drift(wall: FloatArray) -> str:
    parts = [_middle(part) for part in np.array_split(wall, 8)]
    rises = np.diff(parts)
    change = parts[-1] / parts[0] - 1 if parts[0] > 0 else 0.0
    if abs(change) >= _LEAST_CHANGE and (np.sign(rises) == np.sign(change)).sum() >= 6:
        return (
            f"It drifts: a step goes {'up' if change > 0 else 'down'} by {abs(change):.0%} over the run, from "
            f"{duration(parts[0])} to {duration(parts[-1])}."
        )
    wide = max(parts) / min(parts) - 1 if min(parts) > 0 else 0.0
    if wide < _STEADY:
        return f"Steady: no change of level and no drift (the eighths of the run differ by {wide:.0%})."
    low, high = np.quantile(wall, (0.05, 0.95)).tolist()
    between = f"{duration(low)} and {duration(high)}"
    return f"No change of level and no drift, but steps differ: nine in ten lie between {between}."


def _middle(values: FloatArray) -> float:
    """The mean without a tenth at each end: where steps are of two kinds, the median flips between them."""
    low, high = np.quantile(values, (0.1, 0.9))
    return float(values[(values >= low) & (values <= high)].mean())


def _warm_up(run: Run) -> tuple[str, ...]:
    """Single steps only: in long runs the first four keep their own row among the kept steps."""
    table = run.steps if not len(run.steps.count) or int(run.steps.count.max()) == 1 else run.kept_steps
    warm = (table.flags & WARM_UP) != 0
    times = [duration(ns / 1e6) for ns in table.wall_ns[warm].tolist()]
    if not times:
        return ()
    shown = ", ".join(times[:4]) + (", …" if len(times) > 4 else "")
    are = "is" if len(times) == 1 else "are"
    return (f"{plural(len(times), 'warm-up step')} ({shown}) {are} left out of the median and the percentiles.",)
