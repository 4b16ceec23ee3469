"""What the sweep predicts and tries, and what the lab says of three runs. No trial runs."""

from __future__ import annotations

import io
import json

import pytest
from trainperf.prove.changes import Change
from trainperf.prove.lab import Lab, Run, sentence
from trainperf.prove.prover import Outcome
from trainperf.prove.sequential import judge
from trainperf.prove.sweep import Costs, Point, Sweep, first_tried, predicted
from trainperf.report import console, lab_console, sweep_console, try_json

COUNTS = (1, 2, 3, 4, 6, 8, 12, 16)


def grid(costs: Costs, free_cpus: float) -> list[Point]:
    return [Point(w, 1e3 * predicted(costs, w, free_cpus)) for w in COUNTS]


def test_workers_that_sleep_may_be_more_than_the_cpus() -> None:
    sleeps = Costs(cpu=0.0005, blocked=0.032, rest=0.001)
    curve = [predicted(sleeps, w, 2.0) for w in (0, 1, 2, 4, 8)]
    assert curve == sorted(curve, reverse=True) and curve[0] == pytest.approx(0.0335)
    assert predicted(sleeps, 8, 2.0) < 1.1 * (0.0325 / 8)
    assert [p.workers for p in first_tried(grid(sleeps, 2.0))] == [8, 12, 16]


def test_workers_that_compute_share_the_cpus_with_the_loop() -> None:
    computes = Costs(cpu=0.010, blocked=0.0, rest=0.010)
    assert predicted(computes, 1, 2.0) == pytest.approx(0.0113)
    assert predicted(computes, 8, 2.0) == predicted(computes, 1, 2.0)  # the loop itself is the limit
    assert predicted(computes, 8, 1.0) == pytest.approx(0.0213)
    assert [p.workers for p in first_tried(grid(computes, 2.0))] == [1, 2, 3]


def test_in_memory_data_is_not_worth_a_worker() -> None:
    memory = Costs(cpu=0.0001, blocked=0.0, rest=0.001)
    assert predicted(memory, 1, 2.0) > predicted(memory, 0, 2.0)


def test_a_grid_of_nothing_tries_nothing() -> None:
    assert first_tried([]) == []


def test_views_of_a_sweep() -> None:
    outcome = Outcome(Change.parse("num_workers=2"), "proven", "", judge([0.27, 0.26, 0.28, 0.27, 0.27]))
    found = Sweep(15.0, 8.1, [Point(0, None, 15.0), Point(2, 9.0, 9.4), Point(3, 8.0)], outcome)
    out = io.StringIO()
    console.emit(sweep_console.lines(found, patch="fix.patch: git apply fix.patch"), out)
    text = out.getvalue()
    assert "data loading can gain at most 8.1 of 15.0 ms/step (54%)" in text and "proven 1.31x" in text
    rows = [line.split() for line in text.splitlines() if line.strip()[:1] in ("0", "2", "3")]
    assert rows == [["0", "now", "15.0"], ["2", "9.0", "9.4"]]  # 3 was not tried
    said = json.loads(json.dumps(try_json.of_sweep(found, patch="")))
    assert said["best"] == {"num_workers": 2} and said["headroom_ms"] == 8.1 and len(said["grid"]) == 3
    nothing = Sweep(15.0, 0.1, reason="data loading can gain at most 0.7% of the step")
    assert try_json.of_sweep(nothing, patch="")["best"] is None


def runs(amp: float, compiled: float | None = None, *, start_s: float = 20.0, **causes: float) -> list[Run]:
    plain = Run("as it is", Change(), 1000.0, 10.0, {"rss": 1 << 30}, causes or {"compute": 8.0, "data_wait": 2.0})
    half = Run("bf16", Change(), 1000.0 * amp, 10.0 / amp, {"rss": 1 << 30}, plain.causes_ms)
    both = Run("bf16 + compile", Change(), problem="nothing was compiled")
    if compiled is not None:
        rate = 1000.0 * amp * compiled
        both = Run("bf16 + compile", Change(), rate, 1e4 / rate, {"rss": 1 << 30}, plain.causes_ms, start_s)
    return [plain, half, both]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (runs(1.8, 1.0), "bf16 gains 80%: arithmetic and memory traffic are the limit"),
        (runs(1.05, 1.0, data_wait=6.1, compute=3.9), "precision is not the limit, data loading is: 61% data_wait"),
        (runs(1.0, 1.0, gil_wait=7.0, compute=3.0), "GIL contention is: 70% gil_wait"),
        (runs(0.7, 1.0), "bf16 loses 30%: converting tensors costs more"),
        (runs(1.0, 1.5), "Compiling gains 50% more, and pays for its 20 s after 6,000 steps"),
        (runs(1.0, 1.02), "Compiling gains +2%: it does not pay"),
        (runs(1.0), "Compiling: nothing was compiled"),
    ],
)
def test_the_lab_says_what_the_jumps_mean(found: list[Run], said: str) -> None:
    assert said in sentence(found)


def test_views_of_a_lab() -> None:
    found = Lab(runs(1.8))
    found.sentence = sentence(found.runs)
    out = io.StringIO()
    console.emit(lab_console.lines(found), out)
    assert "bf16 + compile    nothing was compiled" in out.getvalue() and "1800" in out.getvalue()
    said = json.loads(json.dumps(try_json.of_lab(found)))
    assert [r["name"] for r in said["runs"]] == ["as it is", "bf16", "bf16 + compile"]
    assert said["runs"][2]["problem"] == "nothing was compiled" and said["sentence"].startswith("bf16 gains 80%")


def test_runs_that_failed_are_not_compared() -> None:
    plain, half, both = runs(1.5)
    half.samples_per_s, half.problem = None, "ValueError: no bf16"
    assert sentence([plain, half, both]) == "no comparison: ValueError: no bf16"
