"""Means per step and their uncertainty: a moving-block bootstrap.

Neighbouring steps are alike (a slow disk, a busy neighbour), so blocks of them are drawn, not single ones. There are
`compare_blocks` blocks at least, however long the run, so that what drifts over a sixteenth of it widens the interval;
with that few, percentiles are too narrow, and are widened as Student's t is over the normal distribution.

Künsch, "The jackknife and the bootstrap for general stationary observations" (1989).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from trainperf.findings.thresholds import limit

Floats = npt.NDArray[np.float64]

REPLICATES = 2000
_Z = 1.959964  # 97.5 % of the normal distribution


def mean_per_step(values: Floats, count: Floats) -> Floats:
    """(columns,) of rows that are sums over `count` steps."""
    mean: Floats = values.sum(axis=0) / count.sum()
    return mean


def draw(seed: int, number: int = REPLICATES) -> Floats:
    """Where blocks start, as shares of the run: (number, blocks)."""
    shares: Floats = np.random.default_rng(seed).random((number, int(limit("compare_blocks"))))
    return shares


def replicates(values: Floats, count: Floats, starts: Floats) -> Floats:
    """Means per step of resampled runs, (number, columns). `values`: sums, (rows, columns); `count`: steps of a row.

    Of two runs with the same `starts` the same stretches are drawn: what changes alike in both over the run, such as a
    validation every hundred steps, then is no noise in their difference.
    """
    rows = len(count)
    length = max(1, math.ceil(rows / starts.shape[1]))
    blocks = math.ceil(rows / length)
    # Sums of each block, wherever it starts: differences of running sums.
    running = np.zeros((rows + 1, values.shape[1] + 1))
    np.cumsum(np.column_stack([values, count]), axis=0, out=running[1:])
    sums = running[length:] - running[:-length]
    places = (starts * len(sums)).astype(np.int64)
    drawn = np.zeros((len(starts), sums.shape[1]))
    for block in range(blocks):  # not all at once: that would be 2000 x 16 x 30 numbers
        drawn += sums[places[:, block]]
    means = drawn[:, :-1] / drawn[:, -1:]
    centre = mean_per_step(values, count)
    # Rows at the ends are in fewer blocks, which moves the replicates' mean: it is put back.
    widened: Floats = centre + (means - means.mean(axis=0)) * _widening(blocks)
    return widened


def _widening(blocks: int) -> float:
    """Student's t over the normal quantile, and the variance of so few over that of many."""
    degrees = max(1, blocks - 1)
    z = _Z
    # Fisher's expansion: 0.1 % from the true quantile at 7 degrees of freedom, less beyond.
    t = (
        z
        + (z**3 + z) / (4 * degrees)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * degrees**3)
    )
    return t / z * math.sqrt(blocks / degrees)


def interval(before: Floats, after: Floats, centre: float, between_runs: float) -> tuple[float, float]:
    """95 % of after - before around `centre`, widened by what two runs of one program differ by (`between_runs`)."""
    low, high = np.quantile(after - before, (0.025, 0.975))
    return (
        centre - math.hypot(max(0.0, centre - float(low)), between_runs),
        centre + math.hypot(max(0.0, float(high) - centre), between_runs),
    )


def ratio_interval(before: Floats, after: Floats, centre: float, between_runs: float) -> tuple[float, float]:
    """The same of log(after / before): turned around it is the same with the other sign, as a difference in percent of
    one of the two is not."""
    tiny = np.finfo(np.float64).tiny  # widened replicates of a wild run may be below zero
    logs = np.log(np.maximum(before, tiny)), np.log(np.maximum(after, tiny))
    # A share of the longer of the two, as interval()'s callers mean it; that of all of it would be no bound.
    return interval(*logs, centre, -math.log1p(-min(between_runs, 0.99)))
