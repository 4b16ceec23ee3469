"""What is made of a device that was traced in some of the steps."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from runfiles import RunFile
from runfiles_devices import UNTRACED
from trainperf.runfile import Traced
from trainperf.runfile.device_estimate import _t, estimate
from trainperf.runfile.records import DeviceSteps, StepTable
from trainperf.runfile.schema import CAUSES

LAUNCH, DATA, IO = (CAUSES.index(cause) for cause in ("launch", "data_wait", "blocked_io"))
DEVICE = [f for f in DeviceSteps.__dataclass_fields__ if f not in ("idle_causes_ns", "untraced", "untraced_ns")]


def table(causes_ms: dict[int, np.ndarray[Any, Any]], flags: np.ndarray[Any, Any] | None = None) -> StepTable:
    """Steps one by one, of these causes."""
    steps = len(next(iter(causes_ms.values())))
    causes = np.zeros((steps, len(CAUSES)), dtype=np.int64)
    for cause, ms in causes_ms.items():
        causes[:, cause] = np.rint(ms * 1e6)
    zero, wall = np.zeros(steps, dtype=np.int64), causes.sum(axis=1)
    return StepTable(
        index=np.arange(steps), count=zero + 1, start_ns=np.cumsum(wall) - wall, wall_ns=wall, wall_min_ns=wall,
        wall_max_ns=wall, flags=zero if flags is None else flags, causes_ns=causes, phases_ns=causes[:, :9],
        fetches=zero, backwards=zero, optimizer_steps=zero, compile_ns=zero,
    )  # fmt: skip


def device(steps: StepTable, idle_ns: np.ndarray[Any, Any], traced: np.ndarray[Any, Any]) -> DeviceSteps:
    """`idle_ns`: by step and cause. Figures of what was not traced are zero, as in a run file."""
    keep = traced.astype(np.int64)
    idle = idle_ns * keep[:, None]
    busy = (steps.wall_ns - idle_ns.sum(axis=1)) * keep
    assert busy.min() >= 0
    of = dict.fromkeys(DEVICE, 10 * keep) | {"busy_ns": busy, "idle_ns": idle.sum(axis=1), "incomplete": 0 * keep}
    return DeviceSteps(**of, idle_causes_ns=idle, untraced=1 - keep, untraced_ns=steps.wall_ns * (1 - keep))


def windows(rng: np.random.Generator, steps: int, *, start: int = 60, length: int = 12, mean: int = 150) -> Any:
    traced = np.zeros(steps, dtype=bool)
    traced[:start] = True
    at = start + int(rng.geometric(1 / mean))
    while at < steps:
        traced[at : at + length] = True
        at += length + int(rng.geometric(1 / mean))
    return traced


def loop(rng: np.random.Generator, steps: int, *, stalls: float = 0.0) -> tuple[StepTable, np.ndarray[Any, Any]]:
    """Steps that drift and differ; in each the device is busy for 3 ms, and idles while the host launches or stalls."""
    drift = 1 + 0.15 * np.sin(np.arange(steps) / 300)
    launch = rng.gamma(30, 5 / 30, steps) * drift + 3
    data = rng.gamma(1, 0.2, steps)
    stall = np.where(rng.random(steps) < stalls, 60 + rng.gamma(2, 10, steps), 0.0)
    of = table({LAUNCH: launch, DATA: data, IO: stall})
    idle = np.zeros_like(of.causes_ns)
    idle[:, LAUNCH] = np.rint((launch - 3) * 0.97e6)
    idle[:, DATA], idle[:, IO] = of.causes_ns[:, DATA] // 2, np.maximum(of.causes_ns[:, IO] - 2_000_000, 0)
    return of, idle


@pytest.mark.parametrize("stalls", [0.0, 1 / 200])
def test_the_interval_holds_and_causes_are_close(stalls: float) -> None:
    held, apart = 0, []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        steps, idle = loop(rng, 6000, stalls=stalls)
        whole, traced = estimate(steps, device(steps, idle, windows(rng, 6000)))
        assert traced is not None and traced.windows > 20
        truth, wall = idle.sum(axis=0), steps.wall_ns.sum()
        held += traced.idle_low <= truth.sum() / wall <= traced.idle_high
        apart.append(np.abs(whole.idle_causes_ns.sum(axis=0) - truth).max() / wall)
        assert traced.idle_high - traced.idle_low < 0.06
    assert held >= 93
    assert np.max(apart) < 0.02 and np.mean(apart) < 0.006


def test_a_stall_in_no_traced_step_is_told_by_the_hosts_own() -> None:
    rng = np.random.default_rng(1)
    steps, idle = loop(rng, 3000)
    traced = windows(rng, 3000)
    causes, free = steps.causes_ns.copy(), np.flatnonzero(~traced)[::200]
    causes[free, IO] += 80_000_000
    steps = table({cause: causes[:, cause] / 1e6 for cause in (LAUNCH, DATA, IO)})
    idle[free, IO] += 80_000_000
    whole, _ = estimate(steps, device(steps, idle, traced))
    stalled = whole.idle_causes_ns[:, IO]
    assert stalled.sum() == pytest.approx(idle[:, IO].sum(), rel=0.02)
    assert set(np.flatnonzero(stalled > 40_000_000)) == set(free)


def test_rows_add_up_and_what_was_measured_stays() -> None:
    rng = np.random.default_rng(2)
    steps, idle = loop(rng, 3000, stalls=0.01)
    traced = windows(rng, 3000)
    measured = device(steps, idle, traced)
    whole, about = estimate(steps, measured)
    assert (whole.busy_ns + whole.idle_ns == steps.wall_ns).all() and whole.busy_ns.min() >= 0
    assert (whole.idle_causes_ns.sum(axis=1) == whole.idle_ns).all() and whole.idle_causes_ns.min() >= 0
    assert (whole.idle_causes_ns[traced] == idle[traced]).all() and (whole.kernels == 10).all()
    assert about is not None and about.steps == traced.sum()


def test_a_whole_trace_is_as_it_is() -> None:
    steps, idle = loop(np.random.default_rng(3), 50)
    measured = device(steps, idle, np.ones(50, dtype=bool))
    assert estimate(steps, measured) == (measured, None)


def test_steps_apart_are_told_by_their_like() -> None:
    """One in two validations is traced, and keeps the device busy; plain steps leave it idle for half of their time."""
    flags = np.where(np.arange(1000) % 100 == 99, 32, 0)
    steps = table({LAUNCH: np.full(1000, 4.0), CAUSES.index("validation"): np.where(flags, 100.0, 0.0)}, flags)
    idle = np.zeros_like(steps.causes_ns)
    idle[:, LAUNCH] = np.where(flags, 0, 2_000_000)
    traced = np.arange(1000) % 200 > 150
    traced[:10] = True
    whole, _ = estimate(steps, device(steps, idle, traced))
    assert (whole.idle_causes_ns[:, LAUNCH] == idle[:, LAUNCH]).all()


def test_from_the_start_alone_there_is_no_interval() -> None:
    steps, idle = loop(np.random.default_rng(4), 500)
    whole, traced = estimate(steps, device(steps, idle, np.arange(500) < 100))
    assert traced is not None and traced.windows == 1 and math.isnan(traced.idle_low)
    assert whole.idle_ns.sum() == pytest.approx(idle.sum(), rel=0.1)


def test_what_was_never_traced_has_no_figures() -> None:
    steps, idle = loop(np.random.default_rng(5), 20)
    measured = device(steps, idle, np.zeros(20, dtype=bool))
    whole, traced = estimate(steps, measured)
    assert whole == measured and traced is not None and (traced.steps, traced.windows) == (0, 0)


def test_students_quantiles() -> None:
    exact = {1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764, 7: 2.3646, 15: 2.1314, 30: 2.0423, 200: 1.9719}
    for freedom, value in exact.items():
        assert _t(freedom) == pytest.approx(value, rel=0.005)


def test_a_run_tells_what_it_rests_on(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "a.tpr")
    file.device(0, "NVIDIA A100")
    of_step = {"busy": 4.0, "idle": {"data_wait": 5.0}, "kernels": 40, "kernel": 4.0}
    for window in range(20):
        file.steps(10, data_wait=5.0, compute=4.0 + 0.1 * (window % 3), devices={0: of_step})
        file.steps(40, data_wait=5.0, compute=4.1, devices={0: UNTRACED})
    file.kernel("gemm", 800.0, count=8000)
    with file.open() as run:
        (of_run,) = run.devices
        assert isinstance(of_run.traced, Traced) and (of_run.traced.steps, of_run.traced.windows) == (200, 19)
        assert of_run.scale == 5.0 and of_run.totals.kernels == 40_000
        assert of_run.totals.idle_ns + of_run.totals.busy_ns == run.wall_ns
        assert of_run.totals.idle_ns / run.wall_ns == pytest.approx(5.1 / 9.1, abs=0.01)
        text = run.summary()
        assert "an estimate, from 200 of 1,000 steps: idle" in text
        found = next(f for f in run.judged.findings if f.id == "TP301" or f.cause == "data_wait")
        assert any("was traced in 200 of 1,000 steps" in line for line in found.evidence), found
