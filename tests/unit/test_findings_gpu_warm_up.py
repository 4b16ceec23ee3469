"""A device's warm-up, on runs made by hand: what of the first steps is one, and what is told without it."""

from __future__ import annotations

from pathlib import Path

import pytest
from devices import DeviceFile, maker
from trainperf.findings.facts import Facts
from trainperf.findings.gpu import BETWEEN
from trainperf.findings.model import Said
from verdicts import Make, infos, loud, said


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return maker(tmp_path / "a.tpr")


def started(file: DeviceFile, first: dict[str, float], *, steps: int = 59, hog: float = 0.0) -> DeviceFile:
    """A first step that has `first` more ms of host causes than the others, for all of which the device idles."""
    file.steps(1, launch=20.0 + first.get("launch", 0), **{c: ms for c, ms in first.items() if c != "launch"})
    file.steps(steps, launch=20.0, **({"gil_wait": hog, "unknown": hog} if hog else {}))
    waits = {"gil_wait": hog, "unknown": hog} if hog else {}
    return file.gpu(lambda step: {"launch": 2.0, **waits} | ({**first, "launch": 2.0} if step == 0 else {}))


def test_the_devices_warm_up_is_told_apart_from_the_loop(make: Make) -> None:
    first = {"module_load": 200.0, "unknown": 2000.0, "gpu_wait": 300.0, "cuda_alloc": 40.0}
    file = started(make(), first)
    (f,) = said(file).findings
    assert (f.id, f.severity, f.steps_affected) == ("TP515", "info", 1)
    assert (f.variant, f.cost_ns, f.fix_share) == ("tried_out", 2_540_000_000, 0.0)
    assert (f.params["first"], f.params["took"], f.params["as_later"]) == (Said("first_step"), 2560e6, 128)
    parts = ("unknown", "gpu_wait", "module_load")  # cuda_alloc is too little to speak of
    assert f.params["parts"] == tuple({"ns": first[p] * 1e6, "said": Said(f"warm_up_{p}")} for p in parts)
    verdict = said(file).verdict
    assert "was not seen" not in verdict.text and "the GPU warmed up in the first step" in verdict.text


def test_a_first_step_in_which_nothing_was_loaded_is_no_warm_up(make: Make) -> None:
    file = started(make(), {"unknown": 2000.0})
    assert "gpu-warm-up" not in infos(file)
    assert "for an unidentified reason" in said(file).verdict.text


@pytest.mark.parametrize(("loading", "cost"), [(0.1, 0), (300.0, 2_800_000_000)])
def test_the_programs_own_first_step_is_no_warm_up_for_a_little_loading(make: Make, loading: float, cost: int) -> None:
    file = make().steps(1, launch=2520.0, module_load=loading).steps(59, launch=20.0)
    file.gpu(lambda step: {"launch": 2500.0, "module_load": loading} if step == 0 else {"launch": 2.0})
    told = [f.cost_ns for f in said(file).findings if f.id == "TP515"]
    assert told == ([cost] if cost else []) and bool(loud(file)) == (not cost)


def test_native_code_that_so_much_loading_does_not_explain_is_told_as_left_out(make: Make) -> None:
    file = make().steps(1, launch=3020.0, module_load=100.0).steps(59, launch=20.0)
    file.gpu(lambda step: {"launch": 3000.0, "module_load": 100.0} if step == 0 else {"launch": 2.0})
    f = next(f for f in said(file).findings if f.id == "TP515")
    assert (f.variant, f.params["cost"], f.params["native"]) == ("warm_up", 1100e6, 2000e6)


def test_later_steps_of_no_length_have_no_warm_up_before_them(make: Make) -> None:
    file = make().steps(1, launch=20.0, module_load=300.0).steps(59)
    file.gpu(lambda step: {"module_load": 300.0} if step == 0 else {})
    assert "gpu-warm-up" not in infos(file)


def test_no_column_of_idleness_is_negative(make: Make) -> None:
    """Of the idleness of `launch` a part is between two kernels, in the first step too."""
    file = make().steps(1, launch=300.0, module_load=300.0).steps(59, launch=20.0)
    file.gpu(lambda step: {"launch": 100.0 if step == 0 else 2.0}, between=lambda step: 50.0 if step == 0 else 0.5)
    with file.open() as run:
        gpu = Facts(run).gpu
        assert gpu is not None and gpu.warm_up is not None
        assert gpu.column(["launch"]).min() >= 0
        assert gpu.column([BETWEEN]).sum() == round((50 + 59 * 0.5) * 1e6)


def test_a_long_run_has_no_warm_up_to_speak_of(make: Make) -> None:
    assert infos(started(make(), {"module_load": 200.0, "unknown": 500.0}, steps=1999)) == []


def test_later_steps_that_are_slow_for_another_reason_are_no_warm_up(make: Make) -> None:
    file = make().steps(1, launch=20.0, module_load=300.0, unknown=200.0)
    file.steps(9, launch=20.0, gil_wait=30.0, unknown=30.0).steps(50, launch=20.0)
    file.gpu(lambda step: {"launch": 2.0, "unknown": 200.0 if step == 0 else 30.0 if step < 10 else 0.0})
    f = next(f for f in said(file).findings if f.id == "TP515")
    assert f.steps_affected == 1


def test_a_trouble_of_all_steps_is_told_without_the_first_steps_share(make: Make) -> None:
    file = make().steps(1, launch=20.0, gpu_wait=900.0, module_load=300.0).steps(59, launch=20.0, gpu_wait=10.0)
    file.gpu(lambda step: {"gpu_wait": 900.0 if step == 0 else 10.0, "module_load": 300.0 if step == 0 else 0.0})
    file.call("stream_sync", 900 + 590, count=60)
    sync = next(f for f in said(file).findings if f.id == "TP504")
    assert sync.severity == "critical"
    assert sync.cost_ns == pytest.approx(600e6, rel=0.01) and sync.steps_affected == 60
