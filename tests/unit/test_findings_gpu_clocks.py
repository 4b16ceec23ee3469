"""Clocks that heat or power holds down, as NVML tells: a finding where the device sets the pace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from devices import DeviceFile
from trainperf.findings.facts import Facts
from trainperf.findings.model import Finding
from trainperf.findings.rules.settings import Checked, check
from trainperf.report import details, model
from verdicts import abstained, said

HEAT, BRAKE, CAP, IDLE = 0x20, 0x88, 0x04, 0x01


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., DeviceFile]:
    def make(*seconds: tuple[int, int], busy_ms: float = 95.0) -> DeviceFile:
        """`seconds`: each one's MHz and reasons; ten steps in each, of 100 ms."""
        file = DeviceFile(tmp_path / "a.tpr").tier("nvml", "nvml")
        file.steps(10 * len(seconds), launch=5.0, gpu_wait=95.0).gpu({"data_wait": 100.0 - busy_ms})
        mhz, reasons = zip(*seconds, strict=True)
        told = {"gpu_sm_mhz:0": mhz, "gpu_throttle_reasons:0": reasons}
        told |= {"gpu_sm_max_mhz:0": [1980] * len(seconds), "gpu_celsius:0": [80] * len(seconds)}
        return file.host(len(seconds) - 1, first=0.5, process_cpus=1.0, machine=told)

    return make


Make = Callable[..., DeviceFile]


def throttled(file: DeviceFile) -> Finding | None:
    return next((f for f in said(file).findings if f.id == "TP516"), None)


@pytest.mark.parametrize(
    ("reasons", "variant", "severity"),
    [
        (HEAT, "heat", "warning"),
        (0x48, "heat", "warning"),
        (BRAKE, "power_brake", "warning"),
        (CAP, "power_cap", "info"),
    ],
)
def test_what_holds_the_clock_down(make: Make, reasons: int, variant: str, severity: str) -> None:
    f = throttled(make(*[(1980, 0)] * 5, *[(1320, reasons)] * 15))
    assert f is not None and (f.variant, f.severity, f.cost_ns) == (variant, severity, 0)
    params = f.params
    assert (params["held"], params["mhz"], params["free_mhz"], params["readings"]) == (0.75, 1320, 1980, 20)
    assert params["slower"] == pytest.approx(0.95 * 0.75 / 3, abs=1e-3)


def test_the_usual_clock_is_that_of_the_run_itself(make: Make) -> None:
    """Not the highest on paper: that one is not reached with nothing in the way either."""
    f = throttled(make(*[(1500, IDLE)] * 5, *[(1000, HEAT)] * 15))
    assert f is not None and f.params["free_mhz"] == 1500


def test_held_down_all_the_time_the_highest_clock_is_the_measure(make: Make) -> None:
    f = throttled(make(*[(1320, HEAT)] * 20))
    assert f is not None and f.params["free_mhz"] == 1980


@pytest.mark.parametrize(
    "seconds",
    [
        [(1320, IDLE)] * 20,  # low, and nothing holds it down
        [(1980, 0)] * 19 + [(990, HEAT)],  # a twentieth of the time
        [(1980, 0)] * 10 + [(1900, CAP)] * 10,  # hardly lower
        [(990, HEAT)] * 4,  # too few readings
    ],
)
def test_no_finding(make: Make, seconds: list[tuple[int, int]]) -> None:
    assert throttled(make(*seconds)) is None


def test_a_device_that_waits_for_the_host_is_not_slowed_down_by_its_clock(make: Make) -> None:
    assert throttled(make(*[(990, HEAT)] * 20, busy_ms=40.0)) is None


def test_check_tells_what_the_clock_costs_at_most(make: Make) -> None:
    def row(file: DeviceFile) -> Checked:
        with file.open() as run:
            (found,) = (c for c in check(Facts(run), run.judged.findings, run.judged.abstained) if c.id == "gpu_clocks")
        return found

    wall_ms = 20 * 1000
    held = row(make(*[(1980, 0)] * 5, *[(1320, HEAT)] * 15))
    assert (held.state, held.cost_is, held.finding) == ("costs", "up to", "TP516")
    assert held.cost_ns == pytest.approx(0.95 * 0.75 / 3 * wall_ms * 1e6, rel=1e-3)
    assert row(make(*[(1980, 0)] * 20)).state == "fine"
    assert row(make(*[(990, HEAT)] * 20).tier("nvml", "off", "no library")).state == "not seen"
    assert row(make(*[(990, HEAT)] * 4)).state == "not seen"


def test_without_nvml_it_abstains(make: Make) -> None:
    file = make(*[(990, HEAT)] * 20).tier("nvml", "off", "Insufficient Permissions")
    assert abstained(file, "TP516") == "nvml off: Insufficient Permissions"


def test_the_report_has_its_lanes(make: Make) -> None:
    with make(*[(1980, 0)] * 5, *[(1320, HEAT)] * 15).open() as run:
        series = {s.name: s for s in details.build(run, model.build(run)).host.series}
    assert series["GPU 0 clock"].top == 1980 and series["GPU 0 clock"].values[-1] == 1320
    assert series["GPU 0 slowed"].mean == 75 and series["GPU 0 slowed"].words == "by heat"
    assert series["GPU 0 heat"].values[0] == 80 and "GPU 0 power" not in series


def test_what_nvml_said_last_does_not_stand_for_what_it_no_longer_says(make: Make) -> None:
    with make(*[(1980, 0)] * 20).tier("nvml", "off", "GPU is lost").open() as run:
        assert not any(s.name.startswith("GPU") for s in details.build(run, model.build(run)).host.series)
