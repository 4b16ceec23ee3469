"""Samples weighed by the exact times that they stand for."""

from __future__ import annotations

import pytest
from trainperf.findings.places import weighed
from verdicts import TRAIN, Make


@pytest.mark.parametrize(("count", "told"), [(20, 0.2), (9, 0.2), (9, 50.0)])
def test_each_phase_and_mechanism_sums_to_its_exact_time_at_most(make: Make, count: int, told: float) -> None:
    """`told`: ms exact of a wait that 200 ms of samples stand for."""
    file = make().steps(100, {("checkpoint", "python"): 4.0, ("checkpoint", "blocked"): told / 100}, compute=10.0)
    for state, ms, n in (("python", 400, 20), ("blocked", 200, count)):
        file.detail(
            "sample", ms, phase="checkpoint", state=state, stack=file.stack(f"{TRAIN}:3 {state}"), count=n, code=230
        )
    file.detail("sample", 77, phase="checkpoint", state="unknown", stack=file.stack(f"{TRAIN}:9 x"), count=50)
    cells = {("checkpoint", "python"): 400_000_000, ("checkpoint", "blocked"): round(told * 1e6)}
    with file.open() as run:
        out = weighed(run.detail_totals("sample"), cells)
    ns = {d.state: d.ns for d in out}
    assert ns.keys() == {"python", "blocked"}  # what tells nothing is left out
    assert ns["python"] == pytest.approx(400e6)
    assert ns["blocked"] == pytest.approx(told * 1e6)
    assert ns["blocked"] <= cells["checkpoint", "blocked"] + 1
