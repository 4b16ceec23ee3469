"""TP601 on runs made by hand: memory that grows, and that does not grow for good."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from runfiles import RunFile
from trainperf.findings.model import Finding
from verdicts import Make, abstained, loud, only, said, unsure

MB = 10**6


def remembers(file: RunFile, rss: Callable[[int], int], seconds: int = 40) -> RunFile:
    return file.steps(seconds * 10, compute=100.0).host(seconds, process_cpus=1.0, rss_bytes=rss)


def noise(second: int) -> int:
    return (second * 7919 % 13) * MB


def test_memory_that_grows_with_every_step(make: Make) -> None:
    f = only(remembers(make(memory_limit=str(8000 * MB)), lambda s: 1000 * MB + 20 * MB * s + noise(s)))
    assert f.id == "TP601" and f.severity == "warning" and f.cost_ns == 0
    assert f.variant == "leak" and f.params["each"] == pytest.approx(2e6, rel=0.01) and f.params["left"]
    assert (f.confidence, f.params["readings"]) == ("high", 31)
    assert said(remembers(make(), lambda s: 1000 * MB + 20 * MB * s)).verdict.text == (
        "memory-growth: the process's memory grows by 2.0 MB a step"
    )
    soon = only(remembers(make(memory_limit=str(2200 * MB)), lambda s: 1000 * MB + 20 * MB * s))
    assert soon.severity == "critical" and soon.params["left"] == pytest.approx(20, abs=0.5)


@pytest.mark.parametrize(
    "rss",
    [
        lambda s: 1000 * MB + noise(s),
        lambda s: 1000 * MB + min(s, 15) * 60 * MB,  # a cache that fills: over before the half
        lambda s: 1000 * MB + min(s, 30) * 60 * MB,  # ... or after it
        lambda s: 1000 * MB + (600 * MB if s >= 25 else 0),  # one step up
        lambda s: 1000 * MB + round(900 * MB * (1 - 0.85**s)),  # it settles
        lambda s: 1000 * MB + round(200 * MB * math.log1p(s)),  # the largest of more and more random lengths
        lambda s: 1000 * MB + (s % 10) * 60 * MB,  # a saw: epochs
        lambda s: 2000 * MB - s * 20 * MB,
        lambda s: 1000 * MB + s * MB // 2,  # 2 % in all
    ],
)
def test_memory_that_does_not_grow_for_good(make: Make, rss: Callable[[int], int]) -> None:
    file = remembers(make(), rss)
    assert loud(file) == [] and abstained(file, "TP601") == ""


def hinted(file: RunFile) -> Finding:
    """The info about memory, beside no warning."""
    found = [f for f in said(file).findings if f.id == "TP601"]
    assert loud(file) == [] and len(found) == 1, found
    return found[0]


def test_memory_that_grows_early_is_an_info_with_its_doubt(make: Make) -> None:
    short = hinted(remembers(make(), lambda s: 300 * MB + 5 * MB * s, seconds=14))
    assert (short.variant, short.severity, short.confidence) == ("early", "info", "low")
    few = make().steps(8, compute=5000.0).host(40, process_cpus=1.0, rss_bytes=lambda s: 300 * MB + 5 * MB * s)
    assert hinted(few).variant == "early"  # enough time, and few steps in it


@pytest.mark.parametrize(("longer", "leak"), [(0.0, True), (0.002, True), (0.03, False)])
def test_memory_that_grows_with_the_work_of_the_steps(make: Make, longer: float, leak: bool) -> None:
    """A curriculum: longer inputs take more memory and more time, and nothing is kept."""
    file = make()
    for step in range(400):
        work = 100.0 * (1 + longer * step / 10)
        file.step({("forward", "native"): work / 3}, compute=work * 2 / 3)
    file.host(40, process_cpus=1.0, rss_bytes=lambda s: 300 * MB + 10 * MB * s)
    if leak:
        assert only(file).id == "TP601"
        return
    f = hinted(file)
    assert (f.variant, f.confidence) == ("with_work", "low")


def test_waits_that_grow_do_not_excuse_a_leak(make: Make) -> None:
    file = make()
    for step in range(400):
        file.step(compute=100.0, gil_wait=0.4 * step)
    assert "memory-growth" in loud(file.host(60, process_cpus=1.0, rss_bytes=lambda s: 300 * MB + 10 * MB * s))


def test_few_readings_tell_no_growth(make: Make) -> None:
    file = remembers(make(), lambda s: 1000 * MB + 200 * MB * s, seconds=8)
    assert loud(file) == [] and unsure(file, "TP601") == "memory_few_readings"
