"""What the sweep predicts and tries, and what the lab says of three runs. No trial runs."""

from __future__ import annotations

import io
import json

import pytest
from trainperf.prove.changes import Change
from trainperf.prove.lab import _ARITHMETIC, _LIMITS, Lab, Run, sentence
from trainperf.prove.prover import Outcome
from trainperf.prove.sequential import judge
from trainperf.prove.sweep import WORKERS, Costs, Point, Sweep, cpus_for, first_tried, predicted
from trainperf.report import console, lab_console, sweep_console, try_json
from trainperf.runfile.schema import CAUSES

COUNTS = WORKERS[1:]  # as a sweep from none predicts them


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
    # More of them than CPUs get a part of these: the loop waits in the run queue while another CPU is idle.
    assert predicted(computes, 8, 2.0) == pytest.approx((0.0113 + 0.010) / (0.84 * 2))
    assert predicted(computes, 8, 1.0) == pytest.approx(2 * predicted(computes, 8, 2.0))
    assert [p.workers for p in first_tried(grid(computes, 2.0))] == [1, 2, 3]


def test_batches_that_come_in_order_wait_for_a_slow_one() -> None:
    """One of eight takes ten times as long as others: eight workers give it to the same one each time."""
    uneven = Costs(cpu=0.0, blocked=0.017, rest=0.001, each=[80 / 17, *[8 / 17] * 7] * 4)
    assert predicted(uneven, 1, 2.0) == pytest.approx(0.017, rel=0.02)
    assert predicted(uneven, 8, 2.0) == pytest.approx(0.080 / 8, rel=0.05)
    assert predicted(uneven, 7, 2.0) < 0.8 * predicted(uneven, 8, 2.0)
    assert predicted(uneven, 8, 2.0, ahead=8) <= predicted(uneven, 8, 2.0)


def test_a_short_epoch_begins_with_no_batch_ready() -> None:
    short, long = (Costs(cpu=0.0, blocked=0.016, rest=0.001, epoch=epoch) for epoch in (12, None))
    assert predicted(short, 8, 2.0) == pytest.approx((0.016 + 12 * 0.0023) / 12)
    assert predicted(long, 8, 2.0) == pytest.approx(0.0023)


def test_workers_get_their_part_of_cpus_that_others_use_too() -> None:
    assert cpus_for(4, 2, 0.0) == 2.0
    assert cpus_for(0, 2, 0.5) == 1.5  # what they leave
    assert cpus_for(0, 2, 2.0) == pytest.approx(2 / 3) and cpus_for(3, 2, 2.0) == pytest.approx(4 / 3)


def test_in_memory_data_is_not_worth_a_worker() -> None:
    memory = Costs(cpu=0.0001, blocked=0.0, rest=0.001)
    assert predicted(memory, 1, 2.0) > predicted(memory, 0, 2.0)


def test_none_is_tried_where_data_is_in_memory_and_the_script_has_workers() -> None:
    memory = Costs(cpu=0.0003, blocked=0.0, rest=0.0007)
    points = [Point(w, 1e3 * predicted(memory, w, 2.0)) for w in WORKERS if w != 4]
    assert [p.workers for p in first_tried(points)] == [0, 1, 2]


def test_a_grid_of_nothing_tries_nothing() -> None:
    assert first_tried([]) == []


def test_views_of_a_sweep() -> None:
    outcome = Outcome(Change.parse("num_workers=2"), "proven", "", judge([0.27, 0.26, 0.28, 0.27, 0.27]))
    found = Sweep(15.0, 8.1, [Point(0, None, 15.0), Point(2, 9.0, 9.4), Point(3, 8.0)], outcome)
    out = io.StringIO()
    console.emit(sweep_console.lines(found, patch="fix.patch: git apply fix.patch"), out)
    text = out.getvalue()
    assert "no loader can save more than 8.1 ms/step (54%)" in " ".join(text.split()) and "proven 1.31x" in text
    rows = [line.split() for line in text.splitlines() if line.strip()[:1] in ("0", "2", "3")]
    assert rows == [["0", "now", "15.0"], ["2", "9.0", "9.4"]]  # 3 was not tried
    said = json.loads(json.dumps(try_json.of_sweep(found, patch="", note="none: why")))
    assert said["patch"] is None and said["patch_note"] == "none: why"
    assert said["best"] == {"num_workers": 2} and said["headroom_ms"] == 8.1 and len(said["grid"]) == 3
    nothing = Sweep(15.0, 0.1, reason="no loader can save more than 0.7% of the step")
    assert try_json.of_sweep(nothing, patch="", note="")["best"] is None


def runs(amp: float, compiled: float | None = None, *, start_s: float = 20.0, **causes: float) -> list[Run]:
    """Of 10 ms a step; what bf16 and compiling change is in the largest cause."""
    plain = causes or {"compute": 8.0, "data_wait": 2.0}
    largest = max(plain, key=lambda c: plain[c])

    def run(name: str, step_ms: float, start_s: float = 0.0) -> Run:
        mine = plain | {largest: plain[largest] + step_ms - 10.0}
        return Run(name, Change(), 1e4 / step_ms, step_ms, {"rss": 1 << 30}, mine, start_s)

    half = 10.0 / amp
    both = Run("bf16 + compile", Change(), problem="nothing was compiled")
    if compiled is not None:
        both = run("bf16 + compile", half / compiled, start_s)
    return [run("as it is", 10.0), run("bf16", half), both]


OF_COMPILE = "Compiling: nothing was compiled"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (runs(1.8), f"bf16 gains 80%, as compute falls from 8 to 3.6 ms/step. {OF_COMPILE}"),
        (
            runs(1.02, data_wait=6.1, compute=3.9),
            f"bf16 gains nothing (+2%): precision is not the limit, data loading is (61% of the step). {OF_COMPILE}",
        ),
        (runs(1.1), f"bf16 gains only 10%: the step is 80% compute, which bf16 does not speed up here. {OF_COMPILE}"),
        (
            runs(0.8, gil_wait=7.0, compute=3.0),
            "bf16 loses 20%, as gil_wait rises from 7 to 9.5 ms/step: its conversions cost more than it saves; "
            f"precision is not the limit, waiting for the GIL is (70% of the step). {OF_COMPILE}",
        ),
        (
            runs(0.7),
            "bf16 loses 30%, as compute rises from 8 to 12 ms/step: its conversions cost more than it saves. "
            f"{OF_COMPILE}",
        ),
        (
            runs(1.8, 1.5),
            "bf16 gains 80%, as compute falls from 8 to 3.6 ms/step. Compiling gains 50% on that, as compute falls "
            "from 3.6 to 1.7 ms/step; its 20 s pay off after 11,000 steps",
        ),
        (
            runs(0.7, 1.3),
            "bf16 loses 30%, as compute rises from 8 to 12 ms/step: its conversions cost more than it saves. Compiling "
            "gains 30% on that, as compute falls from 12 to 9 ms/step; both together are 9% slower than the script as "
            "it is",
        ),
        (
            runs(1.8, 0.98),
            "bf16 gains 80%, as compute falls from 8 to 3.6 ms/step. Compiling gains nothing (-2%)",
        ),
        (
            runs(1.8, 0.8),
            "bf16 gains 80%, as compute falls from 8 to 3.6 ms/step. Compiling loses 20%, as compute rises from "
            "3.6 to 4.9 ms/step",
        ),
    ],
)  # fmt: skip
def test_the_lab_says_what_the_jumps_mean(found: list[Run], said: str) -> None:
    assert sentence(found) == said


def test_the_lab_has_a_word_for_each_cause() -> None:
    assert set(CAUSES) == _LIMITS.keys() | _ARITHMETIC.keys()


def test_views_of_a_lab() -> None:
    found = Lab(runs(1.8), counts="steps")
    found.sentence = sentence(found.runs)
    out = io.StringIO()
    console.emit(lab_console.lines(found), out)
    assert "bf16 + compile    nothing was compiled" in out.getvalue() and "180" in out.getvalue()
    assert "   steps/s   ms/step" in out.getvalue()
    said = json.loads(json.dumps(try_json.of_lab(found)))
    assert [r["name"] for r in said["runs"]] == ["as it is", "bf16", "bf16 + compile"]
    assert [r["samples_per_s"] for r in said["runs"]] == [None] * 3 and said["runs"][1]["step_ms"] < 6
    assert said["runs"][2]["problem"] == "nothing was compiled" and said["sentence"].startswith("bf16 gains 80%")


def test_runs_that_failed_are_not_compared() -> None:
    plain, half, both = runs(1.5)
    half.rate, half.problem = None, "ValueError: no bf16"
    assert sentence([plain, half, both]) == "No comparison, as a run failed (bf16): ValueError: no bf16"
