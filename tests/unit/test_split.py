"""Python and compute are one row where too few samples tell them apart."""

from __future__ import annotations

import pytest
from runfiles import RunFile
from trainperf.comparison import Comparison, compare
from trainperf.findings.verdict import Unsplit
from trainperf.report import charts, compare_console, compare_html, console, details
from trainperf.report.model import build
from verdicts import TRAIN, Make, said

ONE = "on the CPU for 98% of step time; too few samples to tell Python from compute"


def sampled(make: Make, python: int, native: int, *, feeds_device: str = "0", **other: float) -> RunFile:
    """Steps of 10 ms, of which 9.8 are split as so many samples say."""
    whole = max(1, python + native)
    ran = {("forward", "python"): 9.8 * python / whole, ("forward", "native"): 9.8 * native / whole}
    file = make(feeds_device=feeds_device).steps(20, ran, data_wait=0.2, **other)
    at = file.stack("/x/site-packages/torch/nn/modules/linear.py:134 Linear.forward", f"{TRAIN}:9 train")
    for state, count in (("python", python), ("native", native)):
        if count:
            file.detail("sample", 10 * count, phase="forward", state=state, count=count, stack=at)
    return file


@pytest.mark.parametrize(
    ("python", "native", "told"),
    [
        (0, 0, False),
        (0, 9, False),
        (0, 10, True),  # all alike
        (4, 7, False),
        (13, 14, False),
        (4, 41, True),
        (25, 25, True),
    ],
)
def test_a_split_needs_samples_and_more_of_them_the_less_they_agree(
    make: Make, python: int, native: int, told: bool
) -> None:
    found = said(sampled(make, python, native) if python + native else make().steps(20, compute=9.8, data_wait=0.2))
    assert (found.unsplit is None) == told
    assert found.verdict.text.startswith(ONE) != told


def test_what_is_not_told_apart_is_one_row_and_one_bar(make: Make) -> None:
    with sampled(make, 4, 7).open() as run:
        model, text = build(run), console.summary(run)
    (row,) = (row.split() for row in text.splitlines() if "python+compute" in row)
    assert row[1:4] == ["9.8", "ms", "98%"] and "      compute " not in text
    assert [e.name for e in charts.legend(model)] == ["python+compute", "data_wait"]
    assert "too few samples" in charts.legend(model)[0].words
    bar = charts.mean_step(model)
    assert "python+compute 98%" in bar and "compute: " in bar and ">python<" not in bar
    assert {p.name for p in model.causes if p.ns} == {"python", "compute", "data_wait"}  # --json has them all


def test_the_timeline_and_the_worst_steps_show_one_too(make: Make) -> None:
    with sampled(make, 4, 7).keep(3).open() as run:
        found = details.build(run, build(run))
    assert found.bins is not None
    both = dict(found.bins.layers)["python+compute"]
    assert both == pytest.approx([9.8] * 20) and "python" not in dict(found.bins.layers)
    assert {name for name, *_ in found.worst[0].causes} == {"python+compute", "data_wait"}


def test_the_row_of_both_is_marked_by_what_is_found_in_either(make: Make) -> None:
    file = make().steps(50, {("forward", "python"): 4.0, ("forward", "native"): 6.0})
    file.detail("sample", 200, phase="forward", state="python", count=12, stack=file.stack(f"{TRAIN}:4 f"))
    file.detail("sample", 300, phase="forward", state="native", count=18)
    with file.open() as run:
        rows = [row for row in console.summary(run).splitlines() if "python+compute" in row]
    assert len(rows) == 1 and rows[0].endswith("<- TP302")


@pytest.mark.parametrize(("python", "native"), [(4, 7), (7, 4)])
def test_with_a_device_native_code_is_launch(make: Make, python: int, native: int) -> None:
    found = said(sampled(make, python, native, feeds_device="1"))
    assert found.unsplit == Unsplit(("python", "launch"))
    assert found.verdict.text.startswith(ONE.replace("compute", "launch"))


def test_a_trace_and_a_wait_have_no_such_split(make: Make) -> None:
    assert said(make(source="trace").steps(20, compute=5.0, python=5.0)).unsplit is None
    assert said(make().steps(20, compute=0.5, data_wait=9.5)).unsplit is None


def held_against(a: RunFile, b: RunFile) -> Comparison:
    with a.open() as before, b.open() as after:
        return compare(before, after)


@pytest.mark.parametrize(("first", "second"), [((2, 0), (0, 2)), ((4, 5), (5, 4)), ((40, 2), (2, 3))])
def test_a_comparison_has_one_row_too_where_either_run_is_unsure(
    make: Make, first: tuple[int, int], second: tuple[int, int]
) -> None:
    """One of two samples, or four of nine, are no other loop: what they make of Python is chance."""
    found = held_against(sampled(make, *first), sampled(make, *second))
    assert found.kind != "unknown", found.verdict
    assert {c.name: c.told for c in found.causes} == {"python+compute": False, "data_wait": False}
    assert sum(c.after for c in found.causes) == pytest.approx(10.0)
    text = ["".join(part for part, _ in line) for line in compare_console.lines(found)]
    (heading,) = (line for line in text if line.startswith("ms/step"))
    (row,) = (line for line in text if "python+compute" in line)
    assert row.split()[1:] == ["9.80", "9.80", "+0.00", "noise"]
    assert row.index("9.80") == heading.index("from") and max(map(len, text)) <= 80
    assert "python+compute: 9.8" in compare_html.render(found)


def test_where_both_are_sure_python_and_compute_are_compared(make: Make) -> None:
    found = held_against(sampled(make, 90, 10), sampled(make, 10, 90))
    assert {c.name for c in found.causes if c.told} == {"python", "compute"}


def test_a_run_with_a_device_and_one_without_it_have_all_three_in_one(make: Make) -> None:
    found = held_against(sampled(make, 4, 5), sampled(make, 5, 4, feeds_device="1"))
    assert {c.name for c in found.causes} == {"python+launch+compute", "data_wait"}
    assert "python+launch+compute: 9.8" in compare_html.render(found)
