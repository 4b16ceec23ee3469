"""Whether a series of readings rises, and whether it still does at its end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainperf.findings.cpus import Floats

_MOST = 256  # readings that are looked at: all pairs of them are compared


@dataclass(frozen=True, slots=True)
class Trend:
    per_second: float  # median of the slopes between all pairs of readings (Theil and Sen)
    rise: float  # over the whole of the readings, by that slope
    steady: bool  # each quarter is higher than the last, and the second half rises as fast as the whole


def trend(seconds: Floats, values: Floats) -> Trend:
    """Of at least 8 readings, in order of time."""
    if len(seconds) > _MOST:
        kept = np.linspace(0, len(seconds) - 1, _MOST).astype(int)
        seconds, values = seconds[kept], values[kept]
    slope = _slope(seconds, values)
    half = len(seconds) // 2
    late = _slope(seconds[half:], values[half:])
    # What settles, as the largest of more and more random sizes does, rises by ever less (a logarithm by 0.75 of the
    # whole's slope in its second half).
    steady = slope > 0 and _even(_rises(values)) and 0.8 * slope <= late <= 2 * slope
    return Trend(slope, slope * float(seconds[-1] - seconds[0]), steady)


def still_rises(levels: Floats) -> bool:
    """Whether medians of equal parts of a run, 8 at least, rise to its end: in a line or ever faster. Not a jump, a
    plateau, a level that settles, or noise."""
    if len(levels) < 8:
        return False
    at = np.arange(len(levels), dtype=np.float64)
    slope, half = _slope(at, levels), len(levels) // 2
    if slope <= 0 or _order(levels) < (0.8 if len(levels) < 16 else 0.7):
        return False
    rises = _rises(levels)
    faster = bool(rises[0] > 0 and (np.diff(rises) > 0).all())
    return (_even(rises) or faster) and _slope(at[half:], levels[half:]) >= 0.75 * slope


def _rises(values: Floats) -> Floats:
    """From each quarter's median to the next one's."""
    return np.diff([np.median(part) for part in np.array_split(values, 4)])


def _even(rises: Floats) -> bool:
    """No step up and no plateau, which have most of their rise in one quarter."""
    return bool((rises >= 0.25 * rises.mean()).all())


def _order(levels: Floats) -> float:
    """Kendall's tau with time: 1 where each level is above all before it, about 0 for noise."""
    first, second = np.triu_indices(len(levels), 1)
    return float(np.sign(levels[second] - levels[first]).mean())


def _slope(seconds: Floats, values: Floats) -> float:
    first, second = np.triu_indices(len(seconds), 1)
    return float(np.median((values[second] - values[first]) / (seconds[second] - seconds[first])))
