"""What a device did in the steps in which its work was not traced, estimated from those in which it was.

The host's side is known of every step. Of a step that was not traced, the idle time of a cause is the mean over traced
steps, plus a slope times what the host has more of that cause than these: a difference estimator, as of survey
sampling. So a step in which the host stalls is told by its own stall, and the mean of all is that of steps chosen by
chance, whatever the slope. The rest of its time the device was busy.

The steps before the first that was not traced are known by themselves; they are no sample, as a run's start is like
nothing else. Steps with a validation, a checkpoint or an epoch's begin are estimated from their like, where there are.

The interval is that of the idle share, from the differences between windows of traced steps: what a window's steps have
in common is counted once. What untraced steps have of a stall that few traced ones had widens it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from trainperf.runfile.records import (
    Call,
    Copy,
    DeviceSteps,
    Float64Array,
    Int64Array,
    Kernel,
    StepTable,
    Traced,
)
from trainperf.runfile.schema import CAUSES

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WARM_UP, _APART = 16, 32 | 64 | 128  # StepFlag: validation, checkpoint, an epoch's begin
# What the host does for long leaves the device idle. Of the others it does not idle for as long as the host is in them,
# unless the host sets the pace.
_STALLS: Final = [cause not in ("gpu_wait", "launch", "collective", "compute", "unknown") for cause in CAUSES]
_SLOPES: Final = (np.ones(len(CAUSES)), np.array(_STALLS, dtype=np.float64))
_KNOWN: Final = 0.03  # of a step's time: a cause whose time scatters by less was not seen to stall
_UNSURE: Final = 0.2  # of such a cause's slope: a stall may be shorter than what the device has in its queue
_LEVEL: Final = 0.95
_TIMES: Final = ("idle_causes_ns", "busy_ns", "idle_ns", "untraced", "untraced_ns", "incomplete")
_LAUNCHES: Final = ("launch_kernel", "launch_graph", "memset")
_SCALED: Final = ("count", "ns", "tiny", "bytes", "exposed_ns", "small", "failed", "steps")
Summed = TypeVar("Summed", Kernel, Copy, Call)


@dataclass(frozen=True, slots=True)
class _Sample:
    """Traced steps that stand for others, by row of the step table."""

    rows: NDArray[np.intp]
    steps: Float64Array  # traced ones
    window: NDArray[np.intp]  # which of the windows a row is in
    windows: int


def estimate(table: StepTable, measured: DeviceSteps) -> tuple[DeviceSteps, Traced | None]:
    """All steps' figures, and what they rest on; as they are, and None, where every step was traced.

    A row of merged steps, of which some were traced, has the host's time of all: it is taken to be spread evenly.
    """
    if not measured.untraced.any():
        return measured, None
    traced = table.count - measured.untraced
    sample = _sample(table, measured)
    if not sample.steps.sum():
        return measured, Traced(int(traced.sum()), 0, math.nan, math.nan)
    host = table.causes_ns / table.count[:, None]  # of a step
    idle = measured.idle_causes_ns / np.maximum(traced, 1)[:, None]
    slopes, errors = _slopes(sample, host, idle)
    guess, apart = np.zeros_like(host), (table.flags & _APART) != 0
    whole = {f.name: getattr(measured, f.name).astype(np.float64) for f in fields(DeviceSteps)}
    for like in (apart, ~apart):
        among = like[sample.rows] if like[sample.rows].any() else np.ones(len(sample.rows), dtype=bool)
        rows, weights = sample.rows[among], sample.steps[among]
        mean_host, mean_idle = (np.average(of[rows], axis=0, weights=weights) for of in (host, idle))
        guess[like] = mean_idle + slopes * (host[like] - mean_host)
        for name in whole.keys() - set(_TIMES):
            whole[name][like] += measured.untraced[like] * getattr(measured, name)[rows].sum() / weights.sum()
    room = table.wall_ns / table.count
    shown = _within(guess, room, measured.untraced)
    idle_ns = np.rint(measured.idle_causes_ns + shown * measured.untraced[:, None]).astype(np.int64)
    over = np.maximum(idle_ns.sum(axis=1) - table.wall_ns, 0)  # by rounding
    idle_ns[np.arange(len(over)), idle_ns.argmax(axis=1)] -= over
    filled = {name: np.rint(column).astype(np.int64) for name, column in whole.items()} | {
        "idle_causes_ns": idle_ns,
        "idle_ns": idle_ns.sum(axis=1),
        "busy_ns": table.wall_ns - idle_ns.sum(axis=1),
        "incomplete": measured.incomplete,
    }
    wall_ns = max(1, int(table.wall_ns.sum()))
    share = int(filled["idle_ns"].sum()) / wall_ns
    usual_host = np.average(host[sample.rows], axis=0, weights=sample.steps)
    by_slope = np.linalg.norm(errors * (measured.untraced @ (host - usual_host)))
    half = _half_interval(sample, (idle - guess).sum(axis=1), int(measured.untraced.sum()), float(by_slope)) / wall_ns
    low, high = (math.nan, math.nan) if math.isnan(half) else (max(0.0, share - half), min(1.0, share + half))
    return DeviceSteps(**filled), Traced(int(traced.sum()), sample.windows, low, high)


def scaled(sums: Sequence[Summed], scale: float) -> tuple[Summed, ...]:
    """Kernels or copies, summed over the traced steps, as those of all steps (Device.scale)."""
    if scale == 1.0:
        return tuple(sums)
    return tuple(replace(of, **{f: round(getattr(of, f) * scale) for f in _SCALED if hasattr(of, f)}) for of in sums)


def scaled_calls(calls: Sequence[Call], scale: float) -> tuple[Call, ...]:
    """Likewise of the host's calls: launches are seen in traced steps only, the others in all."""
    return tuple(scaled([call], scale)[0] if call.call in _LAUNCHES else call for call in calls)


def _sample(table: StepTable, measured: DeviceSteps) -> _Sample:
    traced = (table.count - measured.untraced).astype(np.float64)
    first = int(np.argmax(measured.untraced > 0))
    rows = np.flatnonzero((traced > 0) & (np.arange(len(traced)) >= first))
    if not len(rows):  # nothing but the start: its second half is the more like the rest
        start = np.flatnonzero((traced > 0) & ((table.flags & _WARM_UP) == 0))
        rows = start[len(start) // 2 :]
    # A window is of rows that follow one another, up to one that has an untraced step.
    begins = np.ones(len(rows), dtype=bool)
    begins[1:] = (np.diff(rows) > 1) | (measured.untraced[rows[1:]] > 0) | (measured.untraced[rows[:-1]] > 0)
    window = np.cumsum(begins) - 1
    return _Sample(rows, traced[rows], window, int(window[-1]) + 1 if len(window) else 0)


def _slopes(sample: _Sample, host: Float64Array, idle: Float64Array) -> tuple[Float64Array, Float64Array]:
    """(causes,): how much longer the device idles for each nanosecond more of the host's; and the standard errors.

    Where the host sets the pace the device's work of a step is the same, and all the rest of it is idle. Where the
    device does, it idles for stalls alone. Whichever leaves the lesser scatter; no slope is fitted, as few steps hold
    most of what differs, and a slope that is fitted to them is biased.
    """
    x, y = host[sample.rows], idle[sample.rows]
    weights = sample.steps / sample.steps.sum()
    x, y = x - weights @ x, y - weights @ y
    slopes = min(_SLOPES, key=lambda of: float(weights @ ((y - of * x).sum(axis=1) ** 2)))
    usual = (_KNOWN * float(weights @ host[sample.rows].sum(axis=1))) ** 2
    return slopes, _UNSURE * np.sqrt(usual / (weights @ (x * x) + usual))


def _within(guess: Float64Array, room: Float64Array, untraced: Int64Array) -> Float64Array:
    """What a step can have: no negative time, nor more than it lasts. The sum of each cause stays what it was."""
    shown = guess.clip(min=0.0)
    wanted, got = (untraced @ of for of in (guess, shown))
    shown *= np.where(got > 0, np.maximum(wanted, 0.0) / np.maximum(got, 1.0), 0.0)
    total = shown.sum(axis=1)
    shown *= np.minimum(1.0, np.divide(room, total, out=np.ones_like(total), where=total > 0))[:, None]
    return shown


def _half_interval(sample: _Sample, residual: Float64Array, untraced: int, by_slope: float) -> float:
    """Of the idle time of the untraced steps, in nanoseconds; nan: one window tells nothing of the others."""
    k, n = sample.windows, float(sample.steps.sum())
    if k < 2:
        return math.nan
    sums = np.bincount(sample.window, weights=residual[sample.rows] * sample.steps, minlength=k)
    steps = np.bincount(sample.window, weights=sample.steps, minlength=k)
    scatter = sums - steps * sums.sum() / n
    variance = k / (k - 1) * float(scatter @ scatter) / n**2
    return _t(k - 1) * math.hypot(untraced * math.sqrt(variance * (1 + n / max(1, untraced))), by_slope)


def _t(freedom: int) -> float:
    """Student's quantile for the interval's level: exact for 1 and 2, else Hill's expansion, within 0.5 %."""
    p = 0.5 + _LEVEL / 2
    if freedom == 1:
        return math.tan(math.pi * (p - 0.5))
    if freedom == 2:
        return (2 * p - 1) * math.sqrt(2 / (4 * p * (1 - p)))
    z = NormalDist().inv_cdf(p)
    v = float(freedom)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / v**power for power, term in enumerate(terms, 1))
