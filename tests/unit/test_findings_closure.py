"""Within the optimizer's step, and what tensors are asked for: TP302 and TP310, on runs made by hand."""

from __future__ import annotations

import pytest
from runfiles import RunFile
from verdicts import TRAIN, Make, advice, only, said

ADAM = "/x/site-packages/torch/optim/adam.py:227 Adam.step"
WRAPPER = "/x/site-packages/torch/optim/optimizer.py:530 Optimizer.profile_hook_step.<locals>.wrapper"
ITER = "/x/site-packages/torch/_tensor.py:1215 Tensor.__iter__"
CLOSURE = (f"{TRAIN}:14 train.<locals>.closure", ADAM, WRAPPER)
CLIP = "/x/site-packages/torch/nn/utils/clip_grad.py:9 clip_grad_norm_"


def steps(make: Make, *frames: str, phase: str = "optimizer", python: float = 0.0, native: float = 4.0) -> RunFile:
    """Milliseconds of each step in these frames."""
    cells = {("forward", "native"): 3.0, ("backward", "native"): 5.0, ("optimizer", "native"): 1.0}
    file = make().steps(100, cells | {(phase, "native"): native, (phase, "python"): python})
    at = file.stack(*frames, f"{TRAIN}:20 train")
    file.detail("sample", 100 * native, phase=phase, state="native", stack=at)
    file.detail("sample", 100 * python, phase=phase, state="python", stack=at)
    return file


@pytest.mark.parametrize(
    "around",
    [
        CLOSURE,
        ("/x/site-packages/lightning/pytorch/trainer/call.py:177 _call_lightning_module_hook", ADAM, WRAPPER),
    ],
)
def test_what_a_closure_computes_is_told(make: Make, around: tuple[str, ...]) -> None:
    lightnings = "lightning" in around[0]
    file = steps(make, ITER, f"{TRAIN}:4 grad_stats", *around, python=3.0)
    f = only(file.meta(lightning='{"version": "2.6.6"}') if lightnings else file)
    assert f.variant == ("lightnings_closure" if lightnings else "closure")
    assert (f.id, f.where, f.causes) == ("TP310", "train.py:4", ("compute", "python"))
    assert "Tensor.__iter__ called by grad_stats" in f.params["place"]
    assert f.cost_ms_per_step == pytest.approx(7.0, abs=0.01)


@pytest.mark.parametrize(
    "frames",
    [
        (CLIP, *CLOSURE),
        ("/x/site-packages/torch/optim/adam.py:544 _single_tensor_adam", ADAM, WRAPPER),
        ("/x/site-packages/torch/optim/adam.py:544 _single_tensor_adam", ADAM, f"{TRAIN}:30 MyAdam.step", WRAPPER),
    ],
)
def test_the_optimizer_and_clipping_are_training(make: Make, frames: tuple[str, ...]) -> None:
    assert said(steps(make, *frames)).findings == ()


def test_python_of_a_closure_is_not_told_to_be_the_optimizers(make: Make) -> None:
    stats = only(steps(make, f"{TRAIN}:4 grad_stats", *CLOSURE, python=6.0))
    assert (stats.id, advice(stats)) == ("TP302", "anywhere")
    assert advice(only(steps(make, f"{TRAIN}:30 MyAdam.step", WRAPPER, python=6.0))) == "in_optimizer"


@pytest.mark.parametrize(
    ("frames", "told"),
    [
        ((ITER, f"{TRAIN}:4 stats.<locals>.<dictcomp>.<listcomp>"), True),
        (("/x/site-packages/torch/storage.py:255 _StorageBase.clone",), True),
        (
            ("/x/site-packages/torch/_tensor.py:147 Tensor.__deepcopy__", "/usr/lib/python3.11/copy.py:153 deepcopy"),
            True,
        ),
        (("/x/site-packages/torch/_tensor.py:623 Tensor.backward",), False),
        ((ITER, "/x/site-packages/lightning/pytorch/loops/loop.py:9 run"), False),
        (("/x/site-packages/torch/functional.py:9 einsum",), True),
        (("/x/site-packages/torch/functional.py:9 norm", "/x/site-packages/torch/_tensor.py:900 Tensor.norm"), True),
        (("/x/site-packages/torch/nn/functional.py:9 relu",), False),
    ],
)
def test_an_operation_on_a_tensor_is_whose_asks_for_it(make: Make, frames: tuple[str, ...], told: bool) -> None:
    file = steps(make, *frames, f"{TRAIN}:4 stats", phase="other", python=6.0, native=0.0)
    assert [f.where for f in said(file).findings if f.id == "TP302"] == (["train.py:4"] if told else [])


def test_a_copy_is_to_be_made_less_often_and_by_no_worker(make: Make) -> None:
    deepcopy = "/usr/lib/python3.11/copy.py:153 deepcopy"
    clone = "/x/site-packages/torch/storage.py:255 _StorageBase.clone"
    f = only(steps(make, clone, deepcopy, f"{TRAIN}:4 snapshot", phase="other", python=6.0, native=0.0))
    assert "copy.deepcopy called by snapshot" in f.params["place"] and advice(f) == "fewer_copies"


def test_a_comprehension_in_another_is_a_part_of_its_function(make: Make) -> None:
    file = steps(make, f"{TRAIN}:4 stats.<locals>.<dictcomp>.<listcomp>", phase="other", python=0.0)
    file.detail("sample", 400, phase="other", state="native", stack=file.stack(f"{TRAIN}:3 stats"))
    (spot,) = only(file).params["spots"]
    assert spot["share"] == 1.0 and "stats (" in spot["place"]
