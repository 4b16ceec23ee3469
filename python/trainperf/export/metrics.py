"""Numbers per step for experiment trackers: milliseconds of the step, and of each cause that the run has."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from trainperf.runfile.schema import CAUSES

if TYPE_CHECKING:
    from trainperf.run import Run

PREFIX = "trainperf/"


def per_step(run: Run) -> Iterator[tuple[int, Mapping[str, float]]]:
    """(step, name -> value). In long runs one for so many neighbouring steps: their means, at the first of them."""
    t = run.steps
    seen = [i for i in range(len(CAUSES)) if t.causes_ns[:, i].any()]
    names = [f"{PREFIX}step_ms", *(f"{PREFIX}{CAUSES[i]}_ms" for i in seen)]
    values = [t.wall_ns, *(t.causes_ns[:, i] for i in seen)]
    counts = [t.count] * len(values)
    for device in run.devices:
        names.append(f"{PREFIX}device{device.id}_idle_ms")
        values.append(device.steps.idle_ns)
        counts.append(t.count - device.steps.untraced)
    means = [
        np.where(count > 0, column / np.maximum(count, 1) / 1e6, np.nan)
        for column, count in zip(values, counts, strict=True)
    ]
    for row, step in enumerate(t.index.tolist()):
        of_step = {name: float(column[row]) for name, column in zip(names, means, strict=True)}
        yield step, {name: value for name, value in of_step.items() if not math.isnan(value)}  # it was traced


def facts(run: Run) -> dict[str, str]:
    """Of the run, for a tracker's parameters or notes."""
    wanted = ("trainperf", "started", "torch", "python", "name", "rank")
    found = {f"{PREFIX}{key}": run.meta[key] for key in wanted if run.meta.get(key)}
    return found | {f"{PREFIX}verdict": run.judged.verdict.text[:500]}
