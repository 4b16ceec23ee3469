"""TP106, and what of a fetch TP101 tells beside it, on runs made by hand: whose time it is, and whether it waits."""

from __future__ import annotations

from typing import Any

import pytest
from runfiles import RunFile
from trainperf.findings.model import Finding
from verdicts import LINUX, TRAIN, Make, loud, only, said

_LOADER = "/x/site-packages/torch/utils/data/dataloader.py"
_NEXT = (f"{_LOADER}:714 _BaseDataLoaderIter._next_index",)
_PUT = (f"{_LOADER}:1539 _MultiProcessingDataLoaderIter._try_put_index", f"{TRAIN}:18 <module>")


def _slow_sampler(file: RunFile, ms: float, of: float, **loader: Any) -> Finding | None:
    """`ms` in the sampler, of the samples of a fetch; the finding about it."""
    inside = file.stack(
        f"{TRAIN}:11 LenBatches.__iter__.<locals>.<listcomp>", f"{TRAIN}:9 LenBatches.__iter__", *_NEXT, *_PUT
    )
    file.steps(100, {("fetch", "python"): ms, ("fetch", "native"): of - ms}, compute=10.0)
    file.loader(1, fetches=100, wait=100 * of, batch_sampler="LenBatches", **loader)
    file.detail("sample", 100 * ms, phase="fetch", stack=inside)
    file.detail("sample", 100 * (of - ms), phase="fetch", state="native", stack=file.stack(*_PUT))
    return next((f for f in said(file).findings if f.id == "TP106"), None)


@pytest.mark.parametrize("ready", [0, 2])
def test_a_slow_sampler_is_no_late_delivery_and_no_slow_worker(make: Make, ready: int) -> None:
    file = make()
    f = _slow_sampler(file, 40.0, 42.0, ready={ready: (100, 4200)}, num_workers=1)
    assert f is not None and (f.severity, f.where) == ("critical", "train.py:11")
    assert f.params["name"] == "LenBatches.__iter__ (train.py:11)" and "more workers" in f.will_not_help
    assert f.cost_ms_per_step == pytest.approx(40.0) and loud(file) == ["slow-sampler"]


def test_a_short_sampler_leaves_a_late_delivery_to_be_told(make: Make) -> None:
    file = make()
    assert _slow_sampler(file, 0.5, 20.0, ready={2: (100, 2000)}, num_workers=1) is None
    (found,) = said(file).findings
    assert found.id == "TP103" and found.cost_ms_per_step == pytest.approx(19.5)


def test_workers_are_not_advised_for_a_slow_sampler(make: Make) -> None:
    f = _slow_sampler(make(), 8.0, 9.0)
    assert f is not None and f.title == "the loop waits for its sampler" and "num_workers" not in f.fix


@pytest.mark.parametrize(("sampler", "costs"), [(4.0, {"TP106": 4.0, "TP101": 5.0}), (1.0, {"TP101": 9.0})])
def test_what_the_sampler_takes_is_told_apart_from_the_data_set(
    make: Make, sampler: float, costs: dict[str, float]
) -> None:
    file = make()
    _slow_sampler(file, sampler, 9.0)
    found = {f.id: f for f in said(file).findings}
    assert {name: f.cost_ms_per_step for name, f in found.items()} == pytest.approx(costs)
    assert "num_workers=" in found["TP101"].fix and "LenBatches" not in found["TP101"].why


def test_a_sampler_that_sleeps_is_not_told_of_the_data_set_that_computes(make: Make) -> None:
    """Each mechanism is shared out by its own samples: few of the sleep may stand for as much as many of Python."""
    file = make(platform=LINUX)
    file.steps(100, {("fetch", "blocked"): 8.0, ("fetch", "python"): 6.0}, compute=6.0)
    file.loader(1, fetches=100, wait=1400, batch_sampler="LenBatches")
    sleeps = file.stack(f"{TRAIN}:9 LenBatches.__iter__", *_NEXT, f"{TRAIN}:18 <module>")
    file.detail("sample", 300, phase="fetch", state="blocked", stack=sleeps, code=230, count=12)
    reads = file.stack(f"{TRAIN}:30 Rows.__getitem__", f"{_LOADER}:80 fetch", f"{TRAIN}:18 <module>")
    file.detail("sample", 600, phase="fetch", stack=reads, count=40)
    sampler, data = sorted(said(file).findings, key=lambda f: f.id, reverse=True)
    assert sampler.id == "TP106" and sampler.cost_ms_per_step == pytest.approx(8.0) and sampler.where == "train.py:9"
    assert sampler.why.endswith("on the training thread, and waits (clock_nanosleep)")
    assert data.id == "TP101" and data.cost_ms_per_step == pytest.approx(6.0) and data.where == "train.py:30"
    assert "computes on the training thread" in data.why and "100% of it on the CPU" in data.evidence[0]


def test_of_what_waits_and_what_computes_in_a_sampler_the_costlier_is_named(make: Make) -> None:
    file = make(platform=LINUX)
    file.steps(100, {("fetch", "blocked"): 8.0, ("fetch", "python"): 4.0}, compute=6.0)
    file.loader(1, fetches=100, wait=1200)
    below = (*_NEXT, f"{TRAIN}:18 <module>")
    sleeps, sorts = (file.stack(f"{TRAIN}:{at}", *below) for at in ("9 LenBatches.lock", "30 LenBatches.sorts"))
    file.detail("sample", 300, phase="fetch", state="blocked", stack=sleeps, code=230, count=12)
    file.detail("sample", 600, phase="fetch", stack=sorts, count=40)
    f = only(file)
    assert (f.id, f.where) == ("TP106", "train.py:9") and f.cost_ms_per_step == pytest.approx(12.0)
    assert f.why.startswith("LenBatches.lock (train.py:9) ") and f.why.endswith("and waits (clock_nanosleep)")
    assert any(e.startswith("67% of 52 stack samples in LenBatches.lock") for e in f.evidence)


def _fetching(file: RunFile, *seen: tuple[int, str, str, float]) -> Finding:
    """8 ms blocked and 6 ms of Python a fetch; where, state and ms of samples."""
    file.steps(100, {("fetch", "blocked"): 8.0, ("fetch", "python"): 6.0}, compute=6.0).loader(
        1, fetches=100, wait=1400
    )
    for line, name, state, ms in seen:
        at = file.stack(f"{TRAIN}:{line} {name}", f"{_LOADER}:80 fetch", f"{TRAIN}:18 <module>")
        file.detail("sample", ms, phase="fetch", state=state, stack=at, code=230 if state == "blocked" else 0, count=40)
    return only(file)


def test_what_waits_and_what_computes_are_not_joined(make: Make) -> None:
    f = _fetching(make(platform=LINUX), (30, "Rows.__getitem__", "python", 600), (40, "collate", "blocked", 500))
    assert f.where == "train.py:40" and f.why.startswith("collate (train.py:40) waits (sleep: clock_nanosleep)")
    assert any("43% of 80 stack samples in Rows.__getitem__ (train.py:30)" in e for e in f.evidence)
    each = [(30 + i, f"Rows.part{i}", "python", 300.0) for i in (1, 2)]
    f = _fetching(make(platform=LINUX), *each, (40, "Rows.lock", "blocked", 1.0), (41, "Rows.read", "blocked", 1.0))
    assert f.where == "train.py:40" and f.why.startswith("Rows.lock (train.py:40) waits")


def test_whether_it_waits_is_told_by_the_exact_split_and_not_by_how_often_it_was_looked_at(make: Make) -> None:
    seen = [(30, "Rows.__getitem__", "python", 900.0), (30, "Rows.__getitem__", "blocked", 100.0)]
    f = _fetching(make(platform=LINUX), *seen)
    assert f.why.startswith("Rows.__getitem__ (train.py:30) waits") and "so waits overlap" in f.fix


def test_a_slow_sampler_is_told_on_a_busy_machine(make: Make) -> None:
    file = make().steps(100, {("fetch", "python"): 2.0, ("other", "descheduled"): 10.0}, compute=12.0)
    file.loader(1, fetches=100, wait=200, num_workers=2)
    stack = file.stack(f"{TRAIN}:9 LenBatches.__iter__", *_NEXT, *_PUT)
    file.detail("sample", 200, phase="fetch", stack=stack, count=40)
    assert "slow-sampler" in loud(file)


def test_a_sampler_too_quick_to_be_told_makes_no_trouble_of_the_data_set(make: Make) -> None:
    file = make().steps(100, {("fetch", "python"): 3.4}, compute=16.6)
    file.loader(1, fetches=100, wait=190, num_workers=2)
    file.loader(2, fetches=100, wait=150)
    stack = file.stack(f"{TRAIN}:9 LenBatches.__iter__", *_NEXT, *_PUT)
    file.detail("sample", 190, phase="fetch", stack=stack, count=40)
    file.detail("sample", 150, phase="fetch", stack=file.stack(f"{TRAIN}:30 Rows.__getitem__", *_PUT), count=40)
    assert loud(file) == []


def test_torchs_own_sampler_is_named_by_its_class(make: Make) -> None:
    file = make().steps(100, {("fetch", "native"): 9.0}, compute=10.0)
    file.loader(1, fetches=100, wait=500, num_workers=4, sampler="SequentialSampler", batch_sampler="BatchSampler")
    file.loader(2, fetches=100, wait=400, num_workers=2, sampler="WeightedRandomSampler", batch_sampler="BatchSampler")
    own = "/x/site-packages/torch/utils/data/sampler.py:200 WeightedRandomSampler.__iter__"
    drawn = "/x/site-packages/torch/utils/data/sampler.py:300 BatchSampler.__iter__"
    file.detail("sample", 900, phase="fetch", state="native", stack=file.stack(own, drawn, *_NEXT, *_PUT))
    f = only(file)
    assert f.params["workers"] is None  # it is not known of which loader
    assert (f.id, f.where) == ("TP106", "") and f.params["name"] == "WeightedRandomSampler"


def test_samples_of_a_sampler_that_stand_for_no_time_leave_the_delivery_to_be_told(make: Make) -> None:
    file = make().steps(100, {("fetch", "native"): 20.0}, compute=10.0)
    file.loader(1, fetches=100, wait=2000, ready={2: (100, 2000)}, num_workers=1)
    file.detail("sample", 0, phase="fetch", state="native", count=20, stack=file.stack(*_NEXT, *_PUT))
    (found,) = said(file).findings
    assert found.id == "TP103" and found.cost_ms_per_step == pytest.approx(20.0)


def _sampler_fix(file: RunFile, *inner: str, training: str = "") -> str:
    at = file.stack(*inner, *_NEXT, *_PUT)
    file.steps(100, {("fetch", "python"): 8.0, ("other", "python"): 1.0}, compute=10.0)
    file.loader(1, fetches=100, wait=800)
    file.detail("sample", 800, phase="fetch", stack=at)
    file.detail("sample", 100, phase="other", stack=file.stack(training or f"{TRAIN}:70 log", f"{TRAIN}:80 <module>"))
    return next(f.fix for f in said(file).findings if f.id == "TP106")


def test_a_sampler_that_reads_samples_is_to_read_them_once(make: Make) -> None:
    fix = _sampler_fix(make(), f"{TRAIN}:5 Texts.__getitem__", f"{TRAIN}:9 ByLength.__iter__")
    assert "once, before training" in fix and "epoch's indices" not in fix


@pytest.mark.parametrize(
    ("inner", "training"),
    [(f"{TRAIN}:9 HardExamples.__iter__", ""), (f"{TRAIN}:9 Chooser.__iter__", f"{TRAIN}:14 Chooser.feed")],
)
def test_what_the_training_decides_is_not_to_be_drawn_at_once(make: Make, inner: str, training: str) -> None:
    fix = _sampler_fix(make(), inner, training=training)
    assert "sample the indices of N batches at a time" in fix and "epoch" not in fix


def test_any_other_sampler_is_to_draw_an_epoch_at_once(make: Make) -> None:
    assert "all indices of the epoch at once" in _sampler_fix(make(), f"{TRAIN}:9 Chooser.__iter__")
