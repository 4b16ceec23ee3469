"""TP309 on runs made by hand: whose calls of PyTorch's Python it names, and what it advises."""

from __future__ import annotations

from typing import Any

import pytest
from trainperf.findings.model import Said
from verdicts import TRAIN, Make, said

TORCH = "/x/site-packages/torch/nn/functional.py:1 relu"
MODULE = "/x/site-packages/torch/nn/modules/module.py:1 Module._call_impl"
FIT = "/x/site-packages/lightning/pytorch/trainer/trainer.py:584 Trainer.fit"


@pytest.mark.parametrize(
    ("phase", "inner", "variant"),
    [
        ("other", (TORCH,), "calls"),
        ("forward", (TORCH, MODULE), "model"),
        ("optimizer", ("/x/site-packages/torch/optim/sgd.py:9 SGD.step",), "optimizer"),
    ],
)
def test_torchs_own_python_names_the_function_that_calls_most_of_it(
    make: Make, phase: str, inner: tuple[str, ...], variant: str
) -> None:
    file = make().steps(100, {(phase, "python"): 6.0}, compute=4.0)
    outer = (f"{TRAIN}:30 train", f"{TRAIN}:47 <module>")
    file.detail("sample", 420, phase=phase, state="python", stack=file.stack(*inner, f"{TRAIN}:12 helper", *outer))
    file.detail("sample", 180, phase=phase, state="python", stack=file.stack(*inner, *outer))
    file.detail("sample", 400, phase="backward", state="native", stack=file.stack(*outer))
    (f,) = said(file).findings
    assert (f.id, f.variant, f.where) == ("TP309", variant, "train.py:12")
    assert "helper (train.py:12)" in f.params["place"] and f.params["place_share"] == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("described", "torch", "advised"),
    [
        ({"class": "SGD"}, "2.13.0", Said("optimizer_fused", {"name": "SGD"})),
        ({"class": "SGD"}, "2.3.1", Said("optimizer_foreach", {"name": "SGD"})),
        ({"class": "RMSprop"}, "2.13.0", Said("optimizer_foreach", {"name": "RMSprop"})),
        ({"class": "RMSprop", "foreach": True}, "2.13.0", Said("optimizer_as_it_is")),
        ({"class": "AdamW", "fused": True}, "2.13.0", Said("optimizer_as_it_is")),
        ({"class": "Lion", "module": "lion"}, "2.13.0", Said("optimizer_unknown")),
    ],
)
def test_the_users_own_optimizer_is_advised_and_an_option_that_it_lacks(
    make: Make, described: dict[str, Any], torch: str, advised: Said
) -> None:
    file = make(torch=torch).steps(100, {("optimizer", "python"): 6.0}, compute=4.0)
    file.object(1, "optimizer", **{"module": "torch.optim.sgd", "device": "cpu", **described})
    step = file.stack("/x/site-packages/torch/optim/sgd.py:9 SGD.step", f"{TRAIN}:12 train", f"{TRAIN}:47 <module>")
    file.detail("sample", 600, phase="optimizer", state="python", stack=step)
    file.detail("sample", 400, phase="backward", state="native", stack=file.stack(f"{TRAIN}:47 <module>"))
    (f,) = said(file).findings
    assert (f.id, f.variant, f.params["optimizer"]) == ("TP309", "optimizer", advised)


def test_few_samples_do_not_tell_which_part_to_make_faster(make: Make) -> None:
    """The advice changed from run to run, and promised what its part was said to be."""
    file = make().steps(100, {("other", "python"): 3.0, ("optimizer", "python"): 3.0}, compute=4.0)
    step = file.stack("/x/site-packages/torch/optim/sgd.py:9 SGD.step", f"{TRAIN}:12 train")
    file.detail("sample", 300, phase="optimizer", state="python", stack=step, count=7)
    file.detail("sample", 300, phase="other", state="python", stack=file.stack(TORCH, f"{TRAIN}:13 train"), count=6)
    (f,) = said(file).findings
    assert (f.id, f.variant, f.fix_share) == ("TP309", "few_samples", 0)


@pytest.mark.parametrize("most", [False, True])
def test_the_line_that_runs_the_training_is_not_named_as_its_caller_nor_one_of_many(make: Make, most: bool) -> None:
    file = make().steps(100, {("other", "python"): 6.0}, compute=4.0)
    for line in (47,) if most else (12, 13):
        stack = file.stack(TORCH, FIT, f"{TRAIN}:{line} part{line}")
        file.detail("sample", 600 if most else 300, phase="other", state="python", stack=stack)
    file.detail("sample", 400, phase="backward", state="native", stack=file.stack(FIT, f"{TRAIN}:47 part47"))
    (f,) = said(file).findings
    assert (f.id, f.variant, f.where, f.params["anomaly"]) == ("TP309", "model", "", False)
    (f,) = said(file.meta(anomaly_percent="100")).findings
    assert (f.variant, f.params["anomaly"], f.fix_share) == ("model", True, 1.0)


PROFILER = "/x/site-packages/torch/autograd/profiler.py:434 profile.__exit__"
STEP = "/x/site-packages/torch/profiler/profiler.py:1227 profile.step"
RECORD = "/x/site-packages/torch/autograd/profiler.py:919 record_function.__enter__"
SGD = "/x/site-packages/torch/optim/sgd.py:9 SGD.step"


@pytest.mark.parametrize(
    ("share", "inner", "cost"),
    [
        (0.25, (PROFILER, STEP), 2.5),  # less than is told of Python that a training needs
        (0.05, (PROFILER, STEP), None),
        (0.25, (RECORD, SGD), None),  # runs without a profiler, too
    ],
)
def test_the_profiler_is_told_by_itself(make: Make, share: float, inner: tuple[str, ...], cost: float | None) -> None:
    file = make().steps(100, {("other", "python"): 10 * share, ("forward", "python"): 1.0}, compute=9 - 10 * share)
    file.detail("sample", 1000 * share, phase="other", state="python", stack=file.stack(*inner, f"{TRAIN}:9 <module>"))
    file.detail("sample", 100, phase="forward", state="python", stack=file.stack(TORCH, MODULE, f"{TRAIN}:8 <module>"))
    found = [f for f in said(file).findings if f.id == "TP309"]
    assert [f.cost_ms_per_step for f in found] == ([pytest.approx(cost)] if cost else [])
    for f in found:
        assert f.severity == "info" and f.variant == "profiler"


def test_the_profiler_is_named_beside_other_python_of_pytorchs(make: Make) -> None:
    file = make().steps(100, {("other", "python"): 2.0, ("forward", "python"): 5.0}, compute=3.0)
    stack = file.stack(PROFILER, STEP, f"{TRAIN}:9 <module>")
    file.detail("sample", 200, phase="other", state="python", stack=stack)
    file.detail("sample", 500, phase="forward", state="python", stack=file.stack(TORCH, MODULE, f"{TRAIN}:8 train"))
    (f,) = said(file).findings
    assert f.cost_ms_per_step == pytest.approx(7.0) and f.params["profiler"] == pytest.approx(2 / 7)
