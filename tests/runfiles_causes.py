"""In which column of a step a time stands: causes of phases and mechanisms, and the row that they make."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from trainperf.runfile.schema import CAUSES, STEP_COLUMNS

# Where the time of a cause lies when a test does not say so.
DEFAULT_CELL: Mapping[str, tuple[str, str]] = {
    "data_wait": ("fetch", "blocked"),
    "h2d_copy": ("transfer", "copy"),
    "gpu_wait": ("other", "gpu_wait"),
    "launch": ("forward", "launch"),
    "cuda_alloc": ("forward", "cuda_alloc"),
    "module_load": ("forward", "module_load"),
    "collective": ("backward", "collective"),
    "gil_wait": ("forward", "gil_wait"),
    "stop_the_world": ("forward", "stop_the_world"),
    "object_lock": ("forward", "object_lock"),
    "gc": ("forward", "gc"),
    "checkpoint": ("checkpoint", "blocked"),
    "validation": ("validation", "native"),
    "logging": ("logging", "blocked"),
    "descheduled": ("forward", "descheduled"),
    "throttled": ("forward", "throttled"),
    "blocked_io": ("other", "blocked"),
    "python": ("forward", "python"),
    "compute": ("backward", "native"),
    "unknown": ("other", "unknown"),
}


@functools.cache
def cause_of(phase: str, mechanism: str, feeds_device: bool = False) -> str:
    """CauseOf of cpp/trainperf/event/names.h."""
    if mechanism in ("gil_wait", "stop_the_world", "object_lock", "gc", "descheduled", "throttled"):
        return mechanism
    of_phase = {"fetch": "data_wait", "transfer": "h2d_copy"} | {p: p for p in ("checkpoint", "validation", "logging")}
    native = "launch" if feeds_device else "compute"
    of_mechanism = {"copy": "h2d_copy", "blocked": "blocked_io", "native": native}
    return of_phase.get(phase) or of_mechanism.get(mechanism, mechanism)


def by_cause(matrix: Mapping[tuple[str, str], int], feeds: bool) -> dict[str, int]:
    sums = dict.fromkeys(CAUSES, 0)
    for (phase, mechanism), ns in matrix.items():
        sums[cause_of(phase, mechanism, feeds)] += ns
    return sums


def step_row(first: int, steps: list[tuple[dict[tuple[str, str], int], dict[str, int]]], feeds: bool) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(STEP_COLUMNS, 0) | {"first_step": first, "steps": len(steps)}
    for matrix, facts in steps:
        row["flags"] |= facts["flags"]
        for field in ("wall_ns", "fetches", "backwards", "optimizer_steps", "compile_ns"):
            row[field] += facts[field]
        for cause, ns in by_cause(matrix, feeds).items():
            row[f"{cause}_ns"] += ns
        for (phase, _), ns in matrix.items():
            row[f"phase_{phase}_ns"] += ns
    row["start_ns"] = steps[0][1]["start_ns"]
    row["wall_min_ns"] = min(facts["wall_ns"] for _, facts in steps)
    row["wall_max_ns"] = max(facts["wall_ns"] for _, facts in steps)
    return row
