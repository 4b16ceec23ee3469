"""Work on a batch between its fetch and the model: told from the model, on runs made by hand."""

from __future__ import annotations

import json
import re

import pytest
from runfiles import RunFile
from test_findings_own_code import CALL, INTERPOLATE, LINEAR
from trainperf.report import console
from verdicts import TRAIN, Make, abstained, only, said

NUMPY = "/x/site-packages/numpy/core/fromnumeric.py:9 clip"
# Lightning calls all of a training_step within the optimizer's step.
LIGHTNING = ("/x/site-packages/lightning/loop.py:9 closure", "/x/site-packages/torch/optim/adam.py:9 Adam.step")
LOSS = ("/x/site-packages/torch/nn/modules/loss.py:1297 CrossEntropyLoss.forward", CALL.format(1832))


def batches(
    make: Make,
    ms: float,
    *frames: str,
    line: int = 8,
    layer: tuple[str, ...] = (LINEAR, CALL.format(1832)),
    caller: tuple[str, ...] = (),
    forward: float = 10.0,
    backward: float = 6.0,
) -> RunFile:
    """`ms` of each step's `forward` in these frames, called on the loop's `line`; the rest in `layer`, on line 9."""
    file = make().steps(
        100, {("forward", "native"): forward, ("backward", "native"): backward, ("optimizer", "native"): 0.5}
    )
    at = file.stack(*frames, f"{TRAIN}:{line} train", *caller, f"{TRAIN}:40 main")
    file.detail("sample", 100 * ms, phase="forward", state="native", stack=at)
    inside = file.stack(*layer, f"{TRAIN}:9 train", *caller, f"{TRAIN}:40 main")
    return file.detail("sample", 100 * (forward - ms), phase="forward", state="native", stack=inside)


@pytest.mark.parametrize(
    ("frames", "where"),
    [
        ((INTERPOLATE, f"{TRAIN}:4 augment"), "train.py:4"),
        ((f"{TRAIN}:4 augment",), "train.py:4"),  # tensor operations have no frames
        ((NUMPY, f"{TRAIN}:4 augment"), "train.py:4"),
        ((INTERPOLATE,), "train.py:8"),  # in the loop itself
    ],
)
@pytest.mark.parametrize("caller", [(), LIGHTNING])
def test_work_on_a_batch_is_a_warning_with_its_place(
    make: Make, frames: tuple[str, ...], where: str, caller: tuple[str, ...]
) -> None:
    f = only(batches(make, 6.0, *frames, caller=caller))
    assert (f.id, f.severity, f.where, f.who) == ("TP310", "critical", where, ("MainThread",))
    assert f.variant == "before_the_model" and f.cost_ms_per_step == pytest.approx(6.0, abs=0.01)


@pytest.mark.parametrize("frames", [(NUMPY, f"{TRAIN}:4 boot"), (NUMPY,)])
def test_what_another_library_does_after_the_model_is_not_said_to_make_the_batch(
    make: Make, frames: tuple[str, ...]
) -> None:
    """A metric of what the model gave."""
    f = only(batches(make, 6.0, *frames, line=10))
    assert (f.id, f.variant, f.severity) == ("TP310", "after_the_model", "critical")


def in_stages(file: RunFile, *work: tuple[float, str, int]) -> RunFile:
    """Two functions of one script train in turn; `work`: ms of each step, function, line it is called on."""
    rest = 10.0 - sum(ms for ms, _, _ in work)
    file.steps(100, {("forward", "native"): 10.0, ("backward", "native"): 6.0, ("optimizer", "native"): 0.5})
    for stage, line in (("pretrain", 40), ("finetune", 41)):
        for ms, function, called in work:
            at = file.stack(f"{TRAIN}:4 {function}", f"{TRAIN}:{called} {stage}", f"{TRAIN}:{line} main")
            file.detail("sample", 50 * ms, phase="forward", state="native", stack=at)
        at = file.stack(LINEAR, CALL.format(1832), f"{TRAIN}:9 {stage}", f"{TRAIN}:{line} main")
        file.detail("sample", 50 * rest, phase="forward", state="native", stack=at)
    return file


def test_what_a_later_stage_does_before_its_model_is_before_it(make: Make) -> None:
    f = only(in_stages(make(), (6.0, "augment", 8)))
    assert f.variant == "before_the_model"


def test_what_comes_between_two_calls_of_the_model_is_not_said_to_follow_it(make: Make) -> None:
    file = in_stages(make(), (3.0, "augment", 8), (1.0, "again", 12))
    at = file.stack(LINEAR, CALL.format(1832), f"{TRAIN}:14 finetune", f"{TRAIN}:41 main")
    file.detail("sample", 50.0, phase="forward", state="native", stack=at)
    assert next(f for f in said(file).findings if f.id == "TP310").variant == "before_the_model"


def test_what_most_of_is_between_two_calls_of_the_model_makes_no_batch(make: Make) -> None:
    """It may need what the first one returned."""
    file = make().steps(100, {("forward", "native"): 10.0, ("backward", "native"): 6.0, ("optimizer", "native"): 0.5})
    layer, refine = (LINEAR, CALL.format(1832)), (NUMPY, f"{TRAIN}:4 refine")
    for ms, frames, line in ((1.0, layer, 9), (7.9, refine, 12), (1.1, layer, 14)):
        at = file.stack(*frames, f"{TRAIN}:{line} train")
        file.detail("sample", 100 * ms, phase="forward", state="native", stack=at)
    f = only(file)
    assert f.variant == "between_calls"


def both_sides(file: RunFile) -> RunFile:
    file.steps(100, {("forward", "native"): 10.0, ("backward", "native"): 6.0, ("optimizer", "native"): 0.5})
    for ms, frames, line in (
        (2.4, (NUMPY, f"{TRAIN}:4 metric"), 10),
        (2.0, (f"{TRAIN}:5 crop",), 7),
        (2.0, (f"{TRAIN}:6 flip",), 8),
        (3.6, (LINEAR, CALL.format(1832)), 9),
    ):
        at = file.stack(*frames, f"{TRAIN}:{line} train")
        file.detail("sample", 100 * ms, phase="forward", state="native", stack=at)
    return file


def test_what_is_done_on_both_sides_of_the_model_is_said_of_both(make: Make) -> None:
    """The largest function alone does not place the others."""
    f = only(both_sides(make()))
    assert f.variant == "around_the_model" and f.params["after"] == pytest.approx(0.375)


@pytest.mark.parametrize(
    ("frames", "backward", "later", "told"),
    [
        ((), {10: 4.0}, False, True),  # tensor operations of the loop's own
        ((f"{TRAIN}:4 knn",), {10: 4.0}, False, True),
        ((), {10: 3.8, 12: 0.2}, False, True),  # a look that took a moment
        ((), {}, False, False),  # not known to come after it: a loss looks the same
        ((), {15: 4.0}, False, False),
        ((), {10: 4.0}, True, False),  # the model is called there, too: of two phases of training
    ],
)
def test_what_comes_after_the_update_is_no_loss(
    make: Make, frames: tuple[str, ...], backward: dict[int, float], later: bool, told: bool
) -> None:
    file = batches(make, 3.0, *frames, line=12)
    for line, ms in backward.items():
        at = file.stack(
            "/x/site-packages/torch/_tensor.py:630 Tensor.backward", f"{TRAIN}:{line} train", f"{TRAIN}:40 main"
        )
        file.detail("sample", 100 * ms, phase="backward", state="native", stack=at)
    if later:
        at = file.stack(LINEAR, CALL.format(1832), f"{TRAIN}:14 train", f"{TRAIN}:40 main")
        file.detail("sample", 10, phase="forward", state="native", stack=at)
    warned = [f for f in said(file).findings if f.severity != "info"]
    if told:
        (f,) = warned
        assert f.id == "TP310" and f.cost_ms_per_step == pytest.approx(3.0, abs=0.05)
        assert f.variant == "after_the_call"
    else:
        assert not warned


def test_its_severity_is_by_its_share(make: Make) -> None:
    shares = {ms: [f.severity for f in said(batches(make, ms, f"{TRAIN}:4 augment")).findings] for ms in (1.0, 2.0)}
    assert shares == {1.0: [], 2.0: ["warning"]}


@pytest.mark.parametrize(
    ("frames", "line"),
    [
        ((f"{TRAIN}:4 loss",), 10),  # after the model: a loss
        ((f"{TRAIN}:4 helper",), 9),  # on the model's line: it is not known which comes first
        (("/x/site-packages/torch/nn/functional.py:2200 linear", f"{TRAIN}:4 embed"), 8),
    ],
)
def test_what_may_be_a_loss_or_a_layer_is_no_warning(make: Make, frames: tuple[str, ...], line: int) -> None:
    assert [f.severity for f in said(batches(make, 6.0, *frames, line=line)).findings] in ([], ["info"])


def test_a_model_that_is_a_function_is_not_told_where_its_loss_is_a_module(make: Make) -> None:
    """That module is no layer: nothing says that the model comes after."""
    assert said(batches(make, 9.0, f"{TRAIN}:4 net", layer=LOSS)).findings == ()


@pytest.mark.parametrize("caller", [(), LIGHTNING])
@pytest.mark.parametrize(("backward", "told"), [(12.0, False), (5.0, True)])
def test_a_function_before_a_small_head_may_be_the_model(
    make: Make, backward: float, told: bool, caller: tuple[str, ...]
) -> None:
    """Where backward is as long as if it went through that function too."""
    found = said(batches(make, 8.0, f"{TRAIN}:4 rnn", backward=backward, caller=caller))
    assert [f.severity for f in found.findings] == (["critical"] if told else [])


def test_setting_gradients_to_zero_is_no_work_on_a_batch(make: Make) -> None:
    zero = "/x/site-packages/torch/optim/optimizer.py:1062 Optimizer.zero_grad"
    assert said(batches(make, 6.0, zero)).findings == ()


def test_the_verdict_of_an_info_as_large_as_a_warning_says_where_and_what_to_do(make: Make) -> None:
    file = batches(make, 6.0, f"{TRAIN}:4 loss", line=10)
    found = said(file)
    assert found.verdict.look == "TP310" and found.verdict.finding == ""
    assert "no warning, but host-compute takes 36%" in found.verdict.text
    with file.open() as run:
        text = console.summary(run)
    assert re.search(r"^Why   MainThread computes in loss \(train\.py:4\) called by train", text, re.M)
    assert re.search(r"^Next  a loss, a model, an average of the weights: vectorize it", text, re.M)


@pytest.mark.parametrize(
    ("forward", "backward", "layers", "said_so"),
    [(10.0, 1.0, False, True), (10.0, 6.0, False, False), (10.0, 1.0, True, False)],
)
def test_a_forward_too_long_for_a_model_of_functions_is_no_all_clear(
    make: Make, forward: float, backward: float, layers: bool, said_so: bool
) -> None:
    """Which function is the model is not known: none is blamed."""
    cells = {("forward", "native"): forward, ("backward", "native"): backward, ("optimizer", "native"): 1.0}
    file = make().steps(100, cells)
    for ms, name in ((0.8 * forward, "augment"), (0.2 * forward, "model")):
        calls = (LINEAR, CALL.format(1832)) if layers else ()
        at = file.stack(*calls, f"{TRAIN}:4 {name}", f"{TRAIN}:20 train")
        file.detail("sample", 100 * ms, phase="forward", state="native", stack=at)
    found = said(file)
    assert (
        "TP310" not in [f.id for f in found.findings]
        and ("augment (train.py:4)" in abstained(file, "TP310")) == said_so
    )
    assert (found.verdict.kind == "partly") == said_so == ("unclear which part is the model" in found.verdict.text)


MAX_POOL = (
    "/x/site-packages/torch/nn/functional.py:837 _max_pool2d",
    "/x/site-packages/torch/_jit_internal.py:637 boolean_dispatch.<locals>.fn",
)


@pytest.mark.parametrize("frames", [(*MAX_POOL, f"{TRAIN}:4 shrink"), MAX_POOL])
def test_functional_layers_that_no_backward_goes_through_work_on_the_batch(make: Make, frames: tuple[str, ...]) -> None:
    """Masks that are eroded anew for each batch: forward is 13 times as long as backward."""
    f = only(batches(make, 30.0, *frames, forward=32.0, backward=2.5))
    assert (f.id, f.variant, f.severity) == ("TP310", "before_the_model", "critical")
    assert "_jit_internal" not in f.params["place"]


def test_functional_layers_that_backward_may_go_through_are_no_all_clear(make: Make) -> None:
    file = batches(make, 6.0, *MAX_POOL, f"{TRAIN}:4 stem")
    found = said(file)
    assert found.findings == () and found.verdict.kind == "partly"
    assert "it is unclear which part is the model" in found.verdict.text and "no trouble" not in found.verdict.text


def module_call(line: int, function: str = "train", **described: object) -> dict[str, object]:
    """What a look saw that the user's line called: a trained module that was given data, but for what is described."""
    seen = {"training": [40, 40], "evaluating": [0, 0], "given": [40, 0], "parameters": 4, "trained": 4, "frozen": []}
    return {"callers": [[TRAIN, function, line], [TRAIN, "main", 40]], "forward": [], **seen, **described}


@pytest.mark.parametrize(("gradient", "told"), [(0, True), (40, False)])
@pytest.mark.parametrize("frames", [(*MAX_POOL, f"{TRAIN}:4 stem"), (f"{TRAIN}:4 stem",)])
def test_what_comes_before_a_model_that_is_given_data_works_on_the_batch(
    make: Make, frames: tuple[str, ...], gradient: int, told: bool
) -> None:
    """Whatever backward takes: here it is long enough for that as well. With a gradient it is a part of the model."""
    file = batches(make, 8.0, *frames, backward=12.0)
    file.meta(module_calls=json.dumps({"calls": [module_call(9, given=[40, gradient])]}))
    found = said(file)
    assert [f.id for f in found.findings if f.severity != "info"] == (["TP310"] if told else [])
    assert found.verdict.kind == ("finding" if told else "healthy")


@pytest.mark.parametrize("line", [8, 9])
def test_a_module_without_parameters_that_is_given_data_works_on_the_batch(make: Make, line: int) -> None:
    """An augmentation, on a line of its own or on the model's."""
    pool = ("/x/site-packages/torch/nn/modules/pooling.py:230 MaxPool2d.forward", CALL.format(1832))
    file = batches(make, 6.0, *pool, line=line)
    shapes = module_call(line, training=[40, 0], parameters=0, trained=0)
    shapes["forward"] = ["/x/site-packages/torch/nn/modules/pooling.py", "MaxPool2d.forward"]
    model = module_call(9, forward=["/x/site-packages/torch/nn/modules/linear.py", "Linear.forward"])
    file.meta(module_calls=json.dumps({"calls": [shapes, model]}))
    f = only(file)
    assert (f.id, f.variant, f.where) == ("TP310", "before_the_model", f"train.py:{line}")


@pytest.mark.parametrize(("backward", "told"), [(2.5, True), (12.0, False)])
def test_what_is_too_long_for_a_loss_after_the_model_is_no_all_clear(make: Make, backward: float, told: bool) -> None:
    """On the loop's own lines: it may be the loss."""
    found = said(batches(make, 8.0, line=10, backward=backward))
    assert (found.verdict.kind == "partly") == told


def test_functional_layers_between_the_phases_are_no_part_of_the_training(make: Make) -> None:
    """What comes after the update, and before the next batch is fetched: no backward follows."""
    cells = {
        ("forward", "native"): 4.0,
        ("backward", "native"): 6.0,
        ("other", "native"): 5.0,
        ("optimizer", "native"): 1.0,
    }
    file = make().steps(100, cells)
    model = file.stack(LINEAR, CALL.format(1832), f"{TRAIN}:9 train")
    file.detail("sample", 400, phase="forward", state="native", stack=model)
    file.detail("sample", 500, phase="other", state="native", stack=file.stack(*MAX_POOL, f"{TRAIN}:12 train"))
    f = only(file)
    assert (f.id, f.where, f.severity) == ("TP310", "train.py:12", "critical")


def test_compute_between_the_phases_that_no_rule_explains_is_no_all_clear(make: Make) -> None:
    """A module without layers, of what has no gradient."""
    cells = {
        ("forward", "native"): 4.0,
        ("backward", "native"): 6.0,
        ("other", "native"): 5.0,
        ("optimizer", "native"): 1.0,
    }
    file = make().steps(100, cells)
    model = file.stack(LINEAR, CALL.format(1832), f"{TRAIN}:9 train")
    file.detail("sample", 400, phase="forward", state="native", stack=model)
    distance = file.stack(
        "/x/site-packages/torch/nn/modules/loss.py:9 CosineEmbeddingLoss.forward",
        CALL.format(1832),
        f"{TRAIN}:12 train",
    )
    file.detail("sample", 500, phase="other", state="native", stack=distance)
    file.meta(module_calls=json.dumps({"calls": [module_call(9), module_call(12, training=[40, 0], parameters=0)]}))
    found = said(file)
    assert found.findings == () and found.verdict.kind == "none"
    assert "31% compute outside of training is unexplained" in found.verdict.text


@pytest.mark.parametrize("hooked", [True, False])
def test_a_smaller_finding_does_not_hide_what_no_rule_explains(make: Make, hooked: bool) -> None:
    """Whether these functions are the model is not known; the finding is of 2 ms after the update."""
    cells = {("forward", "native"): 12.0, ("backward", "native"): 2.0, ("optimizer", "native"): 1.0}
    file = make().steps(100, cells | {("other", "native"): 2.0})
    work = [("forward", 12.0, (f"{TRAIN}:4 net", f"{TRAIN}:20 train")), ("other", 2.0, (f"{TRAIN}:6 ema",))]
    for phase, ms, frames in work[: 1 + hooked]:
        file.detail("sample", 100 * ms, phase=phase, state="native", stack=file.stack(*frames))
    found = said(file)
    if hooked:
        assert found.verdict.finding == "TP310" and found.findings[0].where == "train.py:6"
        assert "; in addition, 71% is compute in forward: unexplained" in found.verdict.text
    else:
        assert found.verdict.kind == "partly"


def test_two_infos_as_large_as_a_warning_are_both_in_the_verdict(make: Make) -> None:
    cells = {("forward", "native"): 10.0, ("backward", "native"): 6.0, ("optimizer", "native"): 0.5}
    file = make().steps(100, cells | {("validation", "native"): 6.0})
    for ms, frames in ((6.0, (f"{TRAIN}:4 loss", f"{TRAIN}:10 train")), (4.0, (LINEAR, CALL.format(1832)))):
        at = file.stack(*frames, f"{TRAIN}:9 train" if ms == 4.0 else f"{TRAIN}:40 main")
        file.detail("sample", 100 * ms, phase="forward", state="native", stack=at)
    found = said(file)
    assert "no warning, but validation takes 27% and host-compute takes 27%" in found.verdict.text
