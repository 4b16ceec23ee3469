"""The run from left to right: each step, or in longer runs stretches of neighbouring ones, by cause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from trainperf.report.svg.palette import CAUSE_LOOKS
from trainperf.runfile.schema import CAUSES

if TYPE_CHECKING:
    from trainperf.run import Run
    from trainperf.runfile.records import Int64Array

FloatArray = npt.NDArray[np.float64]

EACH_STEP: Final = 2000  # so many steps have a column of their own
BINS: Final = 800  # else: as many as a screen has room for
_LEAST_SHARE = 0.003  # of the run, that a cause has a layer of its own
_LEAST_PEAK = 0.15  # or of its largest bin
_MOST_LAYERS = 10


@dataclass(frozen=True, slots=True)
class Bins:
    """Columns of the timeline. The layers sum to mean_ms."""

    first: Int64Array  # step
    steps: Int64Array  # how many; 1 when each has its own column
    mean_ms: FloatArray
    max_ms: FloatArray
    layers: tuple[tuple[str, FloatArray], ...]  # from the bottom up; "" is all the rest
    rest: tuple[str, ...]  # the causes in the layer ""
    top_ms: float  # of the chart: a few far longer steps are cut off there

    @property
    def each_step(self) -> bool:
        return len(self.steps) == 0 or int(self.steps.max()) == 1

    def at(self, step: int) -> float:
        """Where a step lies, in bins; its middle when it has one to itself."""
        i = max(0, int(np.searchsorted(self.first, step, side="right")) - 1)
        return i + min(1.0, (step - int(self.first[i]) + 0.5) / int(self.steps[i]))

    def edge(self, step: int) -> float:
        """Where a step begins, in bins."""
        i = max(0, int(np.searchsorted(self.first, step, side="right")) - 1)
        return i + min(1.0, (step - int(self.first[i])) / int(self.steps[i]))


def bins(run: Run) -> Bins | None:
    """None without a step."""
    table = run.steps
    rows = len(table.count)
    if not rows:
        return None
    starts = np.arange(rows) if rows <= EACH_STEP else np.linspace(0, rows, BINS, endpoint=False).astype(int)
    steps = np.add.reduceat(table.count, starts)
    causes_ms = np.add.reduceat(table.causes_ns, starts, axis=0) / steps[:, None] / 1e6
    mean_ms = np.add.reduceat(table.wall_ns, starts) / steps / 1e6
    max_ms = np.maximum.reduceat(table.wall_max_ns, starts) / 1e6
    unsplit = run.judged.unsplit
    if unsplit is not None:
        python, native = map(CAUSES.index, unsplit.causes)
        causes_ms[:, native] += causes_ms[:, python]
        causes_ms[:, python] = 0
    layers, rest = _layers(causes_ms, mean_ms, steps)
    if unsplit is not None:
        layers = tuple((unsplit.name if name == unsplit.causes[1] else name, ms) for name, ms in layers)
    return Bins(
        first=table.index[starts],
        steps=steps,
        mean_ms=mean_ms,
        max_ms=max_ms,
        layers=layers,
        rest=rest,
        top_ms=_top(mean_ms),
    )


def _layers(
    causes_ms: FloatArray, mean_ms: FloatArray, steps: Int64Array
) -> tuple[tuple[tuple[str, FloatArray], ...], tuple[str, ...]]:
    totals = (causes_ms * steps[:, None]).sum(axis=0)
    whole = float(totals.sum()) or 1.0
    peaks = causes_ms.max(axis=0) / (float(mean_ms.max()) or 1.0)
    wanted = [
        i
        for i in np.argsort(-totals).tolist()
        if totals[i] > 0 and (totals[i] >= _LEAST_SHARE * whole or peaks[i] >= _LEAST_PEAK)
    ][:_MOST_LAYERS]
    others = [i for i in range(len(CAUSES)) if i not in wanted and totals[i] > 0]
    if len(others) == 1:  # its name takes no more room than "others"
        wanted += others
        others = []
    order = {name: place for place, name in enumerate(CAUSE_LOOKS)}
    layers = [(CAUSES[i], causes_ms[:, i]) for i in sorted(wanted, key=lambda i: order[CAUSES[i]])]
    if others:
        layers.append(("", causes_ms[:, others].sum(axis=1)))
    return tuple(layers), tuple(CAUSES[i] for i in others)


def _top(mean_ms: FloatArray) -> float:
    """The longest, unless it would press all others flat."""
    longest = float(mean_ms.max())
    usual = float(np.quantile(mean_ms, 0.97))
    return longest * 1.04 if longest <= 2.2 * usual or usual <= 0 else 1.6 * usual
