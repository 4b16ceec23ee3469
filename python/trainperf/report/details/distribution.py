"""How long steps took: bins for a histogram, and quantiles. Warm-up steps are left out, as in the verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from trainperf.runfile import WARM_UP

if TYPE_CHECKING:
    from trainperf.run import Run

QUANTILES: Final = ((0.5, "median"), (0.95, "p95"), (0.99, "p99"))
_BARS = 56
_LEAST_STEPS = 5


@dataclass(frozen=True, slots=True)
class Distribution:
    """bars: (from ms, to ms, steps); the steps beyond high_ms are in no bar."""

    low_ms: float
    high_ms: float
    bars: tuple[tuple[float, float, int], ...]
    beyond: int
    longest_ms: float
    quantiles: tuple[tuple[str, float], ...]
    steps: int


def distribution(run: Run) -> Distribution | None:
    """None when hardly a step besides warm-up was seen."""
    quantiles = tuple((name, run.wall_ms_quantile(q)) for q, name in QUANTILES)
    if any(math.isnan(value) for _, value in quantiles):
        return None
    table = run.steps
    if run.step_count < _LEAST_STEPS:
        return None
    if int(table.count.max()) == 1:
        values = table.wall_ns[(table.flags & WARM_UP) == 0] / 1e6
        weights = np.ones(len(values), dtype=np.int64)
    else:  # merged rows: the file has a histogram of its own, with bins of at most 1.6 %
        rows = [row for row in run.wall_histogram if row[0] == 0]
        values = np.array([wall_ns / steps / 1e6 for _, _, _, steps, wall_ns in rows])
        weights = np.array([steps for _, _, _, steps, _ in rows], dtype=np.int64)
    longest = float(values.max())
    low = float(values.min())
    # A handful of long steps would leave the rest one bar.
    high = min(longest, max(quantiles[2][1] * 1.15, quantiles[0][1] * 1.6))
    low = max(0.0, low - 0.03 * (high - low)) if high > low else low * 0.9
    high = high if high > low else low * 1.1 + 1e-6
    edges = np.linspace(low, high, _BARS + 1)
    inside = values <= high
    counts, _ = np.histogram(values[inside], bins=edges, weights=weights[inside])
    return Distribution(
        low_ms=low,
        high_ms=high,
        bars=tuple((float(a), float(b), int(n)) for a, b, n in zip(edges, edges[1:], counts.tolist(), strict=False)),
        beyond=int(weights[~inside].sum()),
        longest_ms=longest,
        quantiles=quantiles,
        steps=int(weights.sum()),
    )
