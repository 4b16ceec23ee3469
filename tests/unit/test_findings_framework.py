"""TP309 on runs made by hand: whose calls of PyTorch's Python it names, and what it advises."""

from __future__ import annotations

import pytest
from verdicts import TRAIN, Make, said

TORCH = "/x/site-packages/torch/nn/functional.py:1 relu"
MODULE = "/x/site-packages/torch/nn/modules/module.py:1 Module._call_impl"
FIT = "/x/site-packages/lightning/pytorch/trainer/trainer.py:584 Trainer.fit"


@pytest.mark.parametrize(
    ("phase", "inner", "fix"),
    [
        ("other", (TORCH,), "train.py:12"),
        ("forward", (TORCH, MODULE), "torch.compile"),
        ("optimizer", ("/x/site-packages/torch/optim/sgd.py:9 SGD.step",), "fused=True"),
    ],
)
def test_torchs_own_python_names_the_function_that_calls_most_of_it(
    make: Make, phase: str, inner: tuple[str, ...], fix: str
) -> None:
    file = make().steps(100, {(phase, "python"): 6.0}, compute=4.0)
    outer = (f"{TRAIN}:30 train", f"{TRAIN}:47 <module>")
    file.detail("sample", 420, phase=phase, state="python", stack=file.stack(*inner, f"{TRAIN}:12 helper", *outer))
    file.detail("sample", 180, phase=phase, state="python", stack=file.stack(*inner, *outer))
    file.detail("sample", 400, phase="backward", state="native", stack=file.stack(*outer))
    (f,) = said(file).findings
    assert (f.id, f.where) == ("TP309", "train.py:12") and "helper (train.py:12)" in f.why and fix in f.fix
    assert any(e.startswith("70% of it in ") for e in f.evidence)


@pytest.mark.parametrize("most", [False, True])
def test_the_line_that_runs_the_training_is_not_named_as_its_caller_nor_one_of_many(make: Make, most: bool) -> None:
    file = make().steps(100, {("other", "python"): 6.0}, compute=4.0)
    for line in (47,) if most else (12, 13):
        stack = file.stack(TORCH, FIT, f"{TRAIN}:{line} part{line}")
        file.detail("sample", 600 if most else 300, phase="other", state="python", stack=stack)
    file.detail("sample", 400, phase="backward", state="native", stack=file.stack(FIT, f"{TRAIN}:47 part47"))
    (f,) = said(file).findings
    assert (f.id, f.where) == ("TP309", "") and "torch.compile" in f.fix
