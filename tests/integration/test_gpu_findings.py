"""Findings about a GPU under a real watch(): loops with one trouble each, on the scripted libcupti."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import trainperf
import warm
from fakes import fake_libraries
from trainperf.findings.engine import Findings
from trainperf.findings.model import Finding

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="CUPTI is traced on Linux"),
]

LIVE = pytest.mark.live  # `make test` judges recorded runs of these (tests/replay)
SCRIPT = Path(__file__).resolve().parents[1] / "gpu_programs.py"
MACHINES = {"TP307", "TP602"}  # others that use the CPUs: no fault of the loop's


def played(name: str, path: Path, mode: str) -> Findings:
    cupti, cuda = fake_libraries()
    words = [str(SCRIPT), name, str(path), cupti, cuda, mode]
    done = warm.run(words, env={**os.environ, "TRAINPERF_CUPTI_PATH": cupti})
    assert done.returncode == 0, done.stderr
    with trainperf.open(path) as run:
        assert run.tiers["cuda"].tier == ("cupti-full" if mode == "full" else "cupti-windows"), run.tiers["cuda"]
        return run.judged


def loud(found: Findings) -> set[str]:
    return {f.id for f in found.findings if f.severity != "info"} - MACHINES


def judged(name: str, expected: set[str], tmp_path: Path, mode: str = "full") -> dict[str, Finding]:
    """The findings by id."""
    found = played(name, tmp_path / "a.tpr", mode)
    print(name, found.verdict.text)
    assert loud(found) == expected, [(f.id, f.title, f.evidence) for f in found.findings]
    assert "GPU" in found.verdict.text
    return {f.id: f for f in found.findings}


def test_a_busy_gpu_is_healthy(tmp_path: Path) -> None:
    found = judged("busy", set(), tmp_path)
    if "TP513" not in found:
        with trainperf.open(tmp_path / "a.tpr") as run:
            idle = run.devices[0].totals.idle_causes_ns
            # Others had the CPUs: without them it would have been busy all the time.
            assert run.devices[0].totals.busy_ns + idle["descheduled"] >= 0.9 * run.wall_ns, idle


@LIVE
def test_a_fetch_that_the_gpu_does_not_wait_for_is_no_trouble(tmp_path: Path) -> None:
    found = judged("hidden_fetch", set(), tmp_path)
    assert found["TP101"].severity == "info" and found["TP101"].share < 0.1


@LIVE
def test_a_slow_fetch_is_one_trouble(tmp_path: Path) -> None:
    f = judged("slow_fetch", {"TP101"}, tmp_path)["TP101"]
    assert 4 < f.cost_ms_per_step < 9  # of the 9 ms, the GPU works for 3
    assert any("the GPU was idle" in e for e in f.evidence)


def test_the_gpu_waits_for_whoever_holds_the_gil(tmp_path: Path) -> None:
    f = judged("gil_hog", {"TP201"}, tmp_path)["TP201"]
    (line,) = [e for e in f.evidence if e.startswith("the GPU waited")]
    assert "for thread 'indexer', which held the GIL in json.dumps called by index (" in line
    assert f.cost_ns == f.idle_ns and f.cost_ms_per_step > 3


@LIVE
def test_reading_a_number_in_the_loop(tmp_path: Path) -> None:
    f = judged("item", {"TP504"}, tmp_path)["TP504"]
    assert ".item()" in f.title and f.cost_ms_per_step > 2


@LIVE
def test_copies_from_pageable_memory(tmp_path: Path) -> None:
    f = judged("pageable", {"TP505"}, tmp_path)["TP505"]
    assert f.cost_ms_per_step > 3 and "100% of the bytes" in f.evidence[2]


@LIVE
@pytest.mark.parametrize("mode", ["full", "auto"])
def test_many_small_launches(mode: str, tmp_path: Path) -> None:
    f = judged("launches", {"TP506"}, tmp_path, mode)["TP506"]
    assert "150 kernels a step" in f.why and "100% are tiny" in f.evidence[2]


@LIVE
@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("allocations", "TP508"),
        ("modules", "TP509"),
        ("autotuning", "TP514"),
        ("collectives", "TP510"),
        ("float32", "TP512"),
    ],
)
def test_the_device_rules(name: str, id: str, tmp_path: Path) -> None:
    judged(name, {id}, tmp_path)
