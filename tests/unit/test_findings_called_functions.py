"""TP302 of several functions that the loop calls, none of them notable by itself, on runs made by hand."""

from __future__ import annotations

import pytest
from verdicts import TRAIN, Make, said

RELU = "/x/site-packages/torch/nn/functional.py:1 relu"
MODULES = "/x/site-packages/torch/nn/modules"
CALL, LINEAR = f"{MODULES}/module.py:1520 Module._call_impl", "linear.py:125 Linear.forward"
LOOP = (f"{TRAIN}:8 fit", f"{TRAIN}:90 <module>")


@pytest.mark.parametrize(
    ("callers", "layer", "told"),
    [
        (("score", "score", "score"), LINEAR, "train.py:30"),  # one call, three functions
        (("score", "score", "score"), "loss.py:1297 CrossEntropyLoss.forward", ""),  # they may be the model
        (("score", "score", "score"), "", ""),
    ],
)
def test_functions_that_one_call_has_together_are_told_as_that(
    make: Make, callers: tuple[str, ...], layer: str, told: str
) -> None:
    file = make().steps(100, compute=8.0, python=2.0)
    if layer:
        file.detail("sample", 600, state="native", stack=file.stack(RELU, f"{MODULES}/{layer}", CALL, *LOOP))
    for line, (name, caller) in enumerate(zip(("ngrams", "clip", "count"), callers, strict=True)):
        stack = (f"{TRAIN}:{20 + line} {name}", f"{TRAIN}:{30 if caller == 'score' else 40 + line} {caller}", *LOOP)
        file.detail("sample", 60, state="python", stack=file.stack(*stack), count=20)
    file.detail("sample", 20, state="python", stack=file.stack(RELU, *LOOP))
    found = [f for f in said(file).findings if f.id == "TP302"]
    assert [f.where for f in found] == ([told] if told else [])
    for f in found:
        assert f.share == pytest.approx(0.18, abs=0.001) and f.why.endswith(", and what that calls")
        assert "score (train.py:30) called by fit" in f.why and f.fix.startswith("# what only looks")
        assert any(line.startswith("by function: 33% of 60 samples") for line in f.evidence)


@pytest.mark.parametrize(("each", "told"), [(48, True), (41, True), (38, False)])
def test_functions_that_the_loop_calls_are_told_together_where_none_is_notable(
    make: Make, each: int, told: bool
) -> None:
    """With what the loop's own lines take beside them."""
    file = make().steps(100, compute=8.0, python=2.0)
    file.detail("sample", 600, state="native", stack=file.stack(RELU, f"{MODULES}/{LINEAR}", CALL, *LOOP))
    for line, name in enumerate(("bleu", "recall", "auc")):
        stack = file.stack(f"{TRAIN}:{20 + line} {name}", *LOOP)
        file.detail("sample", each - line, state="python", stack=stack, count=20)
    file.detail("sample", 50, state="python", stack=file.stack(*LOOP))
    file.detail("sample", 200 - 50 - 3 * each + 3, state="python", stack=file.stack(RELU, *LOOP))
    found = [f for f in said(file).findings if f.id == "TP302"]
    assert len(found) == told
    for f in found:
        assert f.where == "train.py:20" and f.fix_share == 1.0
        assert f.share == pytest.approx((3 * each - 3 + 50) / 1000, abs=0.001)
        assert "in bleu" in f.evidence[1] and "bleu (train.py:20)" in f.why and "recall (train.py:21)" in f.why
