"""A line of the loop that holds the GIL runs Python, or frees what a worker made: TP302, on runs made by hand."""

from __future__ import annotations

from typing import Any

import pytest
from verdicts import TRAIN, Make, advice, only

LINEAR = "/x/site-packages/torch/nn/modules/linear.py:134 Linear.forward"
CALL = "/x/site-packages/torch/nn/modules/module.py:1832 Module._call_impl"
TRAINS = {"num_workers": 2, "fetches": 100}


@pytest.mark.parametrize(
    ("frames", "loader", "lines", "told"),
    [
        ((f"{TRAIN}:24 train",), TRAINS, 1, True),
        ((f"{TRAIN}:24 train",), TRAINS | {"num_workers": 0}, 1, False),  # nothing is shared
        ((f"{TRAIN}:24 train",), {"num_workers": 2, "validation": (20, 0.0)}, 1, False),
        ((f"{TRAIN}:24 train",), TRAINS, 2, False),  # several lines: statements of Python
        (("/usr/lib/python3.11/re/__init__.py:9 sub", f"{TRAIN}:24 train"), TRAINS, 1, False),
        ((f"{TRAIN}:24 train.<locals>.<genexpr>", f"{TRAIN}:24 train"), TRAINS, 1, False),
        ((f"{TRAIN}:4 accuracy", f"{TRAIN}:24 train"), TRAINS, 1, False),  # it has no batch to free
    ],
)
def test_a_line_that_may_free_a_batch_is_not_said_to_be_python(
    make: Make, frames: tuple[str, ...], loader: dict[str, Any], lines: int, told: bool
) -> None:
    file = make().steps(100, compute=6.0, python=4.0)
    file.loader(1, **loader)
    for i in range(lines):
        place, _, function = frames[0].partition(" ")
        at = file.stack(f"{place}{i or ''} {function}", *frames[1:])
        file.detail("sample", 400 / lines, state="python", stack=at)
    model = file.stack(LINEAR, CALL, f"{TRAIN}:17 train")
    file.detail("sample", 600, phase="forward", state="native", stack=model)
    f = only(file)
    assert (f.id, f.cost_ms_per_step) == ("TP302", pytest.approx(4.0, abs=0.01))
    assert (f.confidence == "medium") == (f.variant == "frees") == (advice(f) == "if_it_frees") == told
    assert (f.variant in ("runs", "loss_in_pieces")) != told
