"""TP312: a model that runs without a backward, outside of the training step or within it, on runs made by hand."""

from __future__ import annotations

import json

import pytest
from runfiles import RunFile
from test_findings_batch_work import module_call
from trainperf.findings.model import Said
from verdicts import TRAIN, Make, abstained, only, said

CALL = "/x/site-packages/torch/nn/modules/module.py:1789 Module._call_impl"
LINEAR = "/x/site-packages/torch/nn/modules/linear.py:134 Linear.forward"
NET = (LINEAR, CALL, f"{TRAIN}:70 Net.forward", CALL)
NO_GRAD = "/x/site-packages/torch/utils/_contextlib.py:124 context_decorator.<locals>.decorate_context"


def evaluates(
    make: Make,
    *frames: str,
    ms: float = 12.0,
    backward: float = 6.0,
    model: tuple[str, ...] = NET,
    **meta: str,
) -> RunFile:
    """`ms` of each step outside of every phase, in these frames; forward takes 3 ms, in the model."""
    cells = {("forward", "native"): 3.0, ("backward", "native"): backward, ("other", "native"): ms}
    file = make(**meta).steps(100, cells)
    file.detail("sample", 300, phase="forward", state="native", stack=file.stack(*model, f"{TRAIN}:9 train"))
    file.detail("sample", 100 * ms, phase="other", state="native", stack=file.stack(*frames, f"{TRAIN}:12 train"))
    return file


@pytest.mark.parametrize("decorator", [(), (NO_GRAD,)])
def test_evaluation_without_a_switch_is_told_by_who_calls_the_model(make: Make, decorator: tuple[str, ...]) -> None:
    f = only(evaluates(make, *NET, f"{TRAIN}:31 evaluate", *decorator))
    assert (f.slug, f.severity, f.where, f.confidence) == ("extra-forward", "warning", "train.py:31", "medium")
    assert (f.variant, f.params["place"]) == ("outside", "evaluate (train.py:31)")
    assert f.cost_ms_per_step == pytest.approx(12.0, abs=0.01)


def test_what_is_no_layer_is_told_with_the_model_that_it_is_in(make: Make) -> None:
    file = evaluates(make, *NET, f"{TRAIN}:31 evaluate", ms=6.0)
    within = file.stack(f"{TRAIN}:71 Net.forward", CALL, f"{TRAIN}:31 evaluate", f"{TRAIN}:12 train")
    file.detail("sample", 300, phase="other", state="native", stack=within)
    beside = file.stack(f"{TRAIN}:32 evaluate", f"{TRAIN}:12 train")
    file.detail("sample", 300, phase="other", state="native", stack=beside)
    f = next(f for f in said(file).findings if f.slug == "extra-forward")
    assert f.cost_ms_per_step == pytest.approx(6.0 * 900 / 1200, abs=0.01)


def test_less_of_it_is_a_warning_where_each_step_has_it(make: Make) -> None:
    found = said(evaluates(make, *NET, f"{TRAIN}:31 evaluate", ms=5.0))
    assert [(f.slug, f.severity) for f in found.findings] == [("extra-forward", "warning")]
    assert "extra-forward, 5.0 ms/step (36%)" in found.verdict.text


def test_a_forward_that_backward_may_go_through_is_not_told_as_evaluation(make: Make) -> None:
    """Of a second loader the batch is fetched between one forward and the backward of both. Nor is what that model
    does on a line of its own, or in an operation with a backward of its own, the loop's."""
    file = evaluates(make, *NET, f"{TRAIN}:31 train", ms=5.0, backward=9.0)
    inner = (
        (f"{TRAIN}:71 Net.forward", CALL),
        (f"{TRAIN}:80 Op.forward", "/x/site-packages/torch/autograd/function.py:9 apply"),
    )
    for frames in inner:
        at = file.stack(*frames, f"{TRAIN}:31 train", f"{TRAIN}:12 train")
        file.detail("sample", 400, phase="other", state="native", stack=at)
    assert said(file).findings == () and "train (train.py:31)" in abstained(file, "TP312")


def test_where_no_forward_was_seen_it_may_be_this_one(make: Make) -> None:
    assert "TP312" not in [f.id for f in said(evaluates(make, *NET, f"{TRAIN}:31 step", model=())).findings]


@pytest.mark.parametrize(
    "frames",
    [
        (LINEAR, CALL, "/x/site-packages/lightning/loop.py:9 run"),  # by a framework, for itself
        ("/x/site-packages/torch/nn/modules/loss.py:9 CrossEntropyLoss.forward", CALL, f"{TRAIN}:31 metric"),
        ("/x/site-packages/torch/nn/utils/clip_grad.py:9 clip_grad_norm_", f"{TRAIN}:31 clip"),
    ],
)
def test_what_is_no_model_that_the_loop_calls_is_no_evaluation(make: Make, frames: tuple[str, ...]) -> None:
    assert said(evaluates(make, *frames)).findings == ()


@pytest.mark.parametrize(
    ("ms", "function", "told"),
    [
        (12.0, "train", True),  # a frozen model, in the line after the model's own
        (12.0, "rollout", True),
        (5.0, "train", True),
        (3.0, "train", False),  # backward may go through it
    ],
)
def test_a_model_that_runs_without_a_backward_is_told_by_its_line(
    make: Make, ms: float, function: str, told: bool
) -> None:
    """Both count as forward, whose end is the backward: it takes 2 ms."""
    file = make().steps(
        100, {("forward", "native"): 1.5 + ms, ("backward", "native"): 2.0, ("optimizer", "native"): 1.0}
    )
    file.detail("sample", 150, phase="forward", state="native", stack=file.stack(*NET, f"{TRAIN}:9 train"))
    called = file.stack(*NET, f"{TRAIN}:12 {function}")
    file.detail("sample", 100 * ms, phase="forward", state="native", stack=called, count=60)
    if not told:
        assert said(file).findings == ()
        return
    f = only(file)
    assert (f.slug, f.severity, f.where) == ("extra-forward", "warning", "train.py:12")
    assert f.cost_ms_per_step == pytest.approx(ms, abs=0.01)
    assert f.variant == "hardly_trained"
    assert f.params["reason"] == Said("forward_untrained", {"times": pytest.approx(ms / 2, rel=0.01)})


@pytest.mark.parametrize("threads", ["2", "8"])
def test_a_forward_whose_own_threads_lack_cpus_says_nothing_of_its_backward(make: Make, threads: str) -> None:
    cells = {("forward", "native"): 13.5, ("backward", "native"): 2.0, ("optimizer", "native"): 1.0}
    file = make(cpus="2", torch_threads=threads).steps(100, cells)
    file.detail("sample", 1350, phase="forward", state="native", stack=file.stack(*NET, f"{TRAIN}:9 train"))
    assert ("TP312" in [f.id for f in said(file).findings]) == (threads == "2")


@pytest.mark.parametrize(
    ("state", "frames"),
    [
        ("python", (f"{TRAIN}:60 log_activations", CALL, f"{TRAIN}:70 Net.forward", CALL)),  # a forward hook
        ("native", (f"{TRAIN}:61 log_quantiles", CALL, f"{TRAIN}:70 Net.forward", CALL)),
        ("python", (f"{TRAIN}:62 Router.forward", CALL, f"{TRAIN}:70 Net.forward", CALL)),
    ],
)
def test_what_code_of_the_users_does_within_a_model_needs_no_backward(
    make: Make, state: str, frames: tuple[str, ...]
) -> None:
    """Six times as long as backward, which goes through all layers."""
    cells = {("forward", "native"): 1.5, ("backward", "native"): 2.0, ("optimizer", "native"): 1.0}
    cells["forward", state] = cells.get(("forward", state), 0.0) + 12.0
    file = make().steps(100, cells)
    file.detail("sample", 150, phase="forward", state="native", stack=file.stack(*NET, f"{TRAIN}:12 train"))
    file.detail("sample", 1200, phase="forward", state=state, stack=file.stack(*frames, f"{TRAIN}:12 train"))
    assert "TP312" not in [f.id for f in said(file).findings]


@pytest.mark.parametrize(("each", "told"), [(1, False), (10, True)])
def test_few_samples_may_tell_a_line_as_twice_as_long(make: Make, each: int, told: bool) -> None:
    """Two thirds of forward, by 15 samples: 54 % of it as well."""
    cells = {("forward", "native"): 6.0, ("backward", "native"): 2.0, ("optimizer", "native"): 1.0}
    file = make().steps(100, cells)
    for line, count in ((9, 5 * each), (12, 10 * each)):
        stack = file.stack(*NET, f"{TRAIN}:{line} train")
        file.detail("sample", 40 * count / each, phase="forward", state="native", stack=stack, count=count)
    assert ("TP312" in [f.id for f in said(file).findings]) == told


@pytest.mark.parametrize("student", [True, False])
def test_of_the_only_line_a_part_is_needed(make: Make, student: bool) -> None:
    """Of a model that is frozen up to its last layers; of a teacher beside the model nothing is."""
    cells = {("forward", "native"): 9.0, ("backward", "native"): 4.0, ("optimizer", "native"): 1.0}
    file = make().steps(100, cells)
    if student:
        trained = file.stack(*NET, f"{TRAIN}:9 train")
        file.detail("sample", 100, phase="forward", state="native", stack=trained, count=20)
    called = file.stack(*NET, f"{TRAIN}:12 train")
    file.detail("sample", 800 if student else 900, phase="forward", state="native", stack=called, count=160)
    f = only(file)
    assert f.id == "TP312" and f.fix_share == pytest.approx(1.0 if student else 7 / 9)


def test_evaluation_now_and_then_does_not_hide_a_teacher(make: Make) -> None:
    usual = {("forward", "native"): 10.0, ("backward", "native"): 2.0, ("optimizer", "native"): 1.0}
    file = make()
    for _ in range(10):
        file.steps(19, usual).steps(1, {**usual, ("forward", "native"): 170.0})
    for line, name, ms, count in ((9, "train", 300, 40), (12, "teach", 1700, 200), (31, "validate", 1600, 40)):
        stack = file.stack(*NET, f"{TRAIN}:{line} {name}", f"{TRAIN}:40 main")
        steps = 10 if name == "validate" else 200
        file.detail("sample", ms, phase="forward", state="native", stack=stack, count=count, steps=steps)
    f = next(f for f in said(file).findings if f.id == "TP312")
    assert "teach (train.py:12)" in [spot["place"] for spot in f.params["spots"]]


VALIDATE = (f"{TRAIN}:31 validate", f"{TRAIN}:12 train")


def validates(make: Make, *frames: str, forward: float = 100.0, backward: float = 2.0, each: float = 1.5) -> RunFile:
    """Each twentieth of 200 steps has a forward so much longer, in these frames, and such a backward."""
    usual = max(2.0, each / 1.5)
    cells = {("forward", "native"): each, ("backward", "native"): usual, ("optimizer", "native"): 1.0}
    long = {**cells, ("forward", "native"): each + forward, ("backward", "native"): backward}
    file = make()
    for _ in range(10):
        file.steps(19, cells).steps(1, long)
    trained = file.stack(*NET, f"{TRAIN}:9 train")
    file.detail("sample", 200 * each, phase="forward", state="native", stack=trained, count=60, steps=60)
    evaluated = file.stack(*NET, *frames)
    file.detail("sample", 10 * forward, phase="forward", state="native", stack=evaluated, count=40, steps=10)
    called = file.stack("/x/site-packages/torch/autograd/graph.py:9 _engine_run_backward", f"{TRAIN}:10 train")
    return file.detail("sample", 400, phase="backward", state="native", stack=called)


def test_evaluation_with_gradients_is_told_by_the_steps_that_have_it(make: Make) -> None:
    """No switch of mode and no loader show it."""
    f = only(validates(make, *VALIDATE))
    assert (f.slug, f.severity, f.where, f.steps_affected) == ("extra-forward", "warning", "train.py:31", 10)
    assert f.cost_ns == pytest.approx(1000e6, rel=0.01) and f.variant == "outside"
    few = {"few": 10, "longer": pytest.approx(100e6, rel=0.01)}
    assert f.params["place"] == "validate (train.py:31)" and f.params["reason"] == Said("forward_in_few", few)


def test_what_few_steps_do_beside_the_model_is_not_told_with_the_training_that_takes_as_long(make: Make) -> None:
    """A hash of a file of 45 ms in each twentieth step, before the next forward; the model's own line and it take about
    so long in all as these steps take longer, and no other line calls a model."""
    usual = {("forward", "native"): 1.5, ("backward", "native"): 2.0, ("optimizer", "native"): 1.0}
    file = make()
    for _ in range(10):
        file.steps(19, usual).steps(1, {**usual, ("forward", "native"): 46.5})
    trained = file.stack(*NET, f"{TRAIN}:14 <module>")
    file.detail("sample", 300, phase="forward", state="native", stack=trained, count=60, steps=60)
    hashed = file.stack(f"{TRAIN}:8 digest", f"{TRAIN}:20 <module>")
    file.detail("sample", 200, phase="forward", state="native", stack=hashed, count=40, steps=10)
    called = file.stack("/x/site-packages/torch/autograd/graph.py:9 _engine_run_backward", f"{TRAIN}:15 <module>")
    file.detail("sample", 400, phase="backward", state="native", stack=called)
    assert "TP312" not in [f.id for f in said(file).findings]


def test_evaluation_in_the_training_function_is_told_by_its_line(make: Make) -> None:
    assert only(validates(make, f"{TRAIN}:31 train")).where == "train.py:31"


@pytest.mark.parametrize("each", [4.0, 5.0, 6.0])
def test_it_is_told_apart_from_a_training_that_takes_as_long(make: Make, each: float) -> None:
    """Both take a second, or nearly so, in all: what is called in few steps has several samples in each."""
    f = next(f for f in said(validates(make, *VALIDATE, each=each)).findings if f.id == "TP312")
    assert f.where == "train.py:31"


def test_longer_batches_have_a_longer_backward(make: Make) -> None:
    assert "TP312" not in [f.id for f in said(validates(make, *VALIDATE, backward=60.0)).findings]


def test_what_calls_no_module_is_no_evaluation(make: Make) -> None:
    """A batch that is made anew in few steps."""
    file = validates(make, *VALIDATE, forward=0.1)
    file.steps(10, {("forward", "native"): 100.0, ("backward", "native"): 2.0})
    made = file.stack("/x/site-packages/numpy/core.py:9 roll", f"{TRAIN}:40 reshard", f"{TRAIN}:12 train")
    file.detail("sample", 1000, phase="forward", state="native", stack=made, count=40, steps=10)
    assert "TP312" not in [f.id for f in said(file).findings]


POOL = ("/x/site-packages/torch/nn/modules/pooling.py:779 AvgPool2d.forward", CALL, CALL)


def long_forward(make: Make, *calls: dict[str, object], lines: tuple[int, ...] = (9,)) -> RunFile:
    """Ten times as long as backward, by one line of the loop's, or half of it by each."""
    cells = {("forward", "native"): 20.0, ("backward", "native"): 2.0, ("optimizer", "native"): 0.5}
    file = make().steps(100, cells)
    for line in lines:
        stack = file.stack(*POOL, f"{TRAIN}:{line} train", f"{TRAIN}:40 main")
        file.detail("sample", 2000 / len(lines), phase="forward", state="native", stack=stack)
    return file.meta(module_calls=json.dumps({"calls": list(calls)}))


def test_a_model_whose_first_layers_have_no_gradient_is_no_extra_forward(make: Make) -> None:
    """It begins with a pooling of large images."""
    found = said(long_forward(make, module_call(9)))
    assert found.findings == () and found.verdict.kind == "healthy"


def test_frozen_layers_of_the_model_that_is_trained_are_an_info_with_their_names(make: Make) -> None:
    (f,) = said(long_forward(make, module_call(9, trained=2, frozen=["backbone"]))).findings
    assert (f.id, f.severity) == ("TP312", "info")
    assert (f.variant, f.params["layers"]) == ("frozen_layers", ("backbone",))


@pytest.mark.parametrize(
    "calls",
    [
        (module_call(9, training=[40, 0], trained=0), module_call(12)),  # a frozen backbone, and a small head
        (module_call(9, training=[40, 0]), module_call(12)),  # rollouts
        (module_call(9, training=[40, 10]),),  # by the line that trains
        (module_call(9, function="act"),),  # not looked at
        (module_call(9), module_call(12, training=[0, 0])),  # what another returns was not read
        (),
    ],
)
def test_a_line_that_is_not_known_to_be_trained_is_told(make: Make, calls: tuple[dict[str, object], ...]) -> None:
    assert only(long_forward(make, *calls)).severity == "warning"


def test_a_second_forward_with_gradients_is_told_where_the_backward_may_be_of_either(make: Make) -> None:
    assert only(long_forward(make, module_call(9), module_call(12), lines=(9, 12))).severity == "warning"


def test_a_head_that_is_given_what_the_model_returned_has_its_backward(make: Make) -> None:
    found = said(long_forward(make, module_call(9), module_call(12, given=[40, 40])))
    assert "TP312" not in [f.id for f in found.findings]


@pytest.mark.parametrize("damaged", ["[", "[1]", '{"calls": 3}', '{"calls": [3, {"callers": [[1]]}, {"callers": 2}]}'])
def test_a_damaged_look_says_nothing(make: Make, damaged: str) -> None:
    assert only(long_forward(make).meta(module_calls=damaged)).id == "TP312"


@pytest.mark.parametrize(("gradient", "said_of"), [(40, ""), (0, "TP312")])
def test_a_forward_outside_of_the_phases_is_known_by_its_gradient(make: Make, gradient: int, said_of: str) -> None:
    """Of two losses that one backward goes through, the batch of the second is fetched after the first forward."""
    file = evaluates(make, *NET, f"{TRAIN}:31 train", ms=5.0, backward=9.0)
    file.meta(module_calls=json.dumps({"calls": [module_call(31, training=[40, gradient]), module_call(9)]}))
    found = said(file)
    assert [f.id for f in found.findings] == ([said_of] if said_of else [])
    assert (found.verdict.kind == "healthy" and "no trouble" in found.verdict.text) == (not said_of)


def test_a_forward_that_may_be_trained_is_no_all_clear(make: Make) -> None:
    found = said(evaluates(make, *NET, f"{TRAIN}:31 train", ms=5.0, backward=9.0))
    assert found.verdict.kind == "partly" and "it is unclear whether it is trained" in found.verdict.text


def test_evaluation_by_the_line_that_trains_is_told_from_it_by_the_callers(make: Make) -> None:
    """An epoch of training and one of validation are one function."""
    evaluated = module_call(9, training=[0, 0], evaluating=[40, 0])
    evaluated["callers"] = [[TRAIN, "train", 9], [TRAIN, "main", 41]]
    assert said(long_forward(make, module_call(9), evaluated)).findings == ()
