"""Rules about what the training thread does, on runs made by hand: what they must say, and when they must be silent."""

from __future__ import annotations

import json

import numpy as np
import pytest
from runfiles import RunFile
from verdicts import TRAIN, Make, abstained, advice, loud, only, said, unsure


def test_host_python_is_the_users_own(make: Make) -> None:
    file = make().steps(100, compute=6.0, python=4.0)
    file.detail("sample", 350, state="python", stack=file.stack(f"{TRAIN}:60 count_tokens"))
    file.detail("sample", 50, state="python", stack=file.stack("/x/site-packages/torch/nn/functional.py:1 relu"))
    f = only(file)
    assert f.id == "TP302" and f.where == "train.py:60" and f.cost_ms_per_step == pytest.approx(3.5, abs=0.01)


@pytest.mark.parametrize("rest", [0.5, 4.0])
def test_python_of_few_steps_is_told_with_their_number(make: Make, rest: float) -> None:
    """Once an epoch; what every step has beside it is not the rare work's."""
    file = make()
    for step in range(240):
        other = 0.0 if step % 30 else 170.0
        file.step({("other", "python"): other}, compute=5.0, python=rest + (0.3 if step % 7 == 0 else 0.0))
    file.detail("sample", 1360, phase="other", state="python", stack=file.stack(f"{TRAIN}:11 reshard"))
    file.detail("sample", 240 * rest, state="python", stack=file.stack(TORCH), count=50)
    f = next(f for f in said(file).findings if f.id == "TP302")
    assert f.steps_affected == 8 and f.cost_ns == pytest.approx(1360e6, rel=0.02)
    assert (f.params["few"], f.params["few_each"]) == (8, pytest.approx(170e6, rel=0.02))
    assert (f.variant, advice(f)) == ("runs", "now_and_then")


def test_python_of_every_step_that_varies_is_told_a_step(make: Make) -> None:
    file = make()
    for ms in np.random.default_rng(0).exponential(4.0, 200):
        file.step(compute=6.0, python=ms)
    file.detail("sample", 800, state="python", stack=file.stack(f"{TRAIN}:60 count_tokens"))
    f = only(file)
    assert f.steps_affected == 200 and f.params["few"] is None and advice(f) == "anywhere"


def test_rare_text_is_not_advised_to_be_rarer(make: Make) -> None:
    file = make()
    for step in range(200):
        file.step({("other", "python"): 0.0 if step % 50 else 200.0}, compute=5.0)
    stack = file.stack("/x/site-packages/torch/_tensor_str.py:3 _str", f"{TRAIN}:7 show")
    f = only(file.detail("sample", 800, phase="other", state="python", stack=stack))
    assert (f.variant, f.steps_affected, f.params["rare"]) == ("text", 4, True)


PANDAS = "/x/site-packages/pandas/core/apply.py:845 Apply.agg"
TORCH = "/x/site-packages/torch/nn/functional.py:1 relu"


@pytest.mark.parametrize(
    ("leaf", "mine"),
    [
        ((PANDAS,), True),
        (("/usr/lib/python3.11/functools.py:9 wrapper", PANDAS), True),
        (("/x/site-packages/torchvision/transforms/functional.py:9 resize",), True),
        (("/x/site-packages/torch/utils/data/dataset.py:9 get",), False),
        (("/x/site-packages/numpy/core/x.py:9 asarray", TORCH), False),
        (("/usr/lib/python3.11/copy.py:9 deepcopy", "/x/site-packages/lightning/pytorch/trainer.py:1 run"), False),
        (("/x/site-packages/transformers/trainer.py:9 train",), False),
        (("/x/site-packages/torchvision/models/resnet.py:9 forward",), False),
    ],
)
def test_a_librarys_python_is_the_users_unless_a_framework_called_it(
    make: Make, leaf: tuple[str, ...], mine: bool
) -> None:
    file = make().steps(100, compute=3.0, python=7.0)
    file.detail("sample", 650, state="python", stack=file.stack(*leaf, f"{TRAIN}:6 features", f"{TRAIN}:11 <module>"))
    file.detail("sample", 50, state="python", stack=file.stack())
    (f,) = said(file).findings
    assert (f.id, f.where) == (("TP302", "train.py:6") if mine else ("TP309", ""))
    # Stacks that were not read are as the others, where these are nearly all the user's; else nobody's.
    assert f.cost_ms_per_step == pytest.approx(7.0 if mine else 6.5, abs=0.01)


@pytest.mark.parametrize(("torch", "count", "cost"), [(0, 40, 9.0), (4, 40, 8.9), (80, 40, 1.5), (0, 8, None)])
def test_stacks_that_could_not_be_read(make: Make, torch: int, count: int, cost: float | None) -> None:
    """Half of pandas' own: it calls too fast. Where others' code is there too, they may be its."""
    file = make().steps(100, compute=1.0, python=9.0)
    file.detail("sample", 5.0 * count, state="python", stack=file.stack(PANDAS, f"{TRAIN}:6 <module>"), count=count)
    file.detail("sample", 5.0 * torch, state="python", stack=file.stack(TORCH), count=max(1, torch))
    file.detail("sample", 600, state="python", stack=file.stack(), count=120)
    found = [f for f in said(file).findings if f.id == "TP302"]
    assert len(found) == (cost is not None)
    if cost is not None:
        assert found[0].cost_ms_per_step == pytest.approx(cost, abs=0.8)
        assert found[0].params["unread"]


INIT = "<string>:11 __create_fn__.<locals>.__init__"
FORWARD = "/x/site-packages/transformers/models/bert/modeling_bert.py:1010 BertModel.forward"


@pytest.mark.parametrize(
    ("stack", "rule", "where"),
    [
        ((INIT, f"{TRAIN}:60 count_tokens"), "TP302", "train.py:60"),  # a dataclass of the script's
        (("<string>:1 <lambda>", f"{TRAIN}:60 count_tokens"), "TP302", "train.py:60"),  # a named tuple
        (("<attrs-generated>:3 __init__", f"{TRAIN}:60 f"), "TP302", "train.py:60"),
        ((f"{TRAIN}:9 Token.__post_init__", INIT, f"{TRAIN}:60 f"), "TP302", "train.py:9"),
        ((INIT, FORWARD, f"{TRAIN}:11 <module>"), "TP309", ""),  # ModelOutput is a dataclass
        (("<string>:7 tokens", "<string>:30 <module>"), "TP302", "<string>:7"),  # python -c
        (("<string>:7 Net.forward", TORCH, "<string>:30 <module>"), "TP302", "<string>:7"),
    ],
)
def test_code_made_as_a_text_is_its_callers_unless_all_of_the_program_is(
    make: Make, stack: tuple[str, ...], rule: str, where: str
) -> None:
    file = make().steps(100, compute=4.0, python=6.0)
    file.detail("sample", 600, state="python", stack=file.stack(*stack))
    (f,) = said(file).findings
    assert (f.id, f.where) == (rule, where)
    if rule == "TP302" and where.startswith("train.py"):
        assert "<string>" not in f.why + "".join(f.evidence) + f.fix


def test_what_has_no_name_is_a_part_of_the_function_around_it(make: Make) -> None:
    file = make().steps(100, compute=6.0, python=4.0)
    for inner in (".<locals>.<listcomp>", ".<locals>.<lambda>.<locals>.<genexpr>", ""):
        file.detail("sample", 130, state="python", stack=file.stack(PANDAS, f"{TRAIN}:6 features{inner}"))
    f = only(file)
    (spot,) = f.params["spots"]
    assert spot["share"] == 1.0 and spot["place"].endswith("called by features (train.py:6)")


@pytest.mark.parametrize(("other", "named"), [(130, False), (20, True)])
def test_a_function_that_calls_several_is_not_said_to_be_in_one_of_them(make: Make, other: int, named: bool) -> None:
    file = make().steps(100, compute=6.0, python=4.0)
    file.detail("sample", 260, state="python", stack=file.stack(PANDAS, f"{TRAIN}:6 features", f"{TRAIN}:8 train"))
    dumps = "/usr/lib/python3.11/json/encoder.py:200 JSONEncoder.encode"
    file.detail("sample", other, state="python", stack=file.stack(dumps, f"{TRAIN}:7 features", f"{TRAIN}:8 train"))
    says = "pandas.core.apply.Apply.agg called by features (train.py:6)"
    assert (says if named else "features (train.py:6) called by train") in only(file).params["place"]


@pytest.mark.parametrize(("itself", "named"), [(60, True), (250, False)])
def test_what_a_function_does_beside_its_one_call_is_little(make: Make, itself: int, named: bool) -> None:
    file = make().steps(100, compute=6.0, python=4.0)
    file.detail("sample", 260, state="python", stack=file.stack(PANDAS, f"{TRAIN}:6 features"))
    file.detail("sample", itself, state="python", stack=file.stack(f"{TRAIN}:6 features"))
    assert ("called by features (train.py:6)" in only(file).params["place"]) == named


@pytest.mark.parametrize(
    ("phase", "outer", "fix"),
    [
        ("optimizer", (f"{TRAIN}:20 slow_update",), "in_optimizer"),
        ("backward", (f"{TRAIN}:20 slow_update", "/x/site-packages/torch/autograd/function.py:9 apply"), "in_backward"),
        (
            "forward",
            (f"{TRAIN}:20 slow_update", "/x/site-packages/torch/nn/modules/module.py:1 Module._call_impl"),
            "in_model",
        ),
        ("other", (f"{TRAIN}:20 slow_update",), "anywhere"),
    ],
)
def test_a_helper_is_named_with_its_caller_and_sent_only_where_it_can_go(
    make: Make, phase: str, outer: tuple[str, ...], fix: str
) -> None:
    file = make().steps(100, {(phase, "python"): 7.0}, compute=3.0)
    file.detail("sample", 690, phase=phase, state="python", stack=file.stack("/home/me/job/base.py:9 spin", *outer))
    f = only(file)
    assert f.id == "TP302" and f.params["place"] == "spin (base.py:9) called by slow_update (train.py:20)"
    assert advice(f) == fix


@pytest.mark.parametrize("line", [9, 10])
def test_tensors_made_item_by_item_are_to_be_converted_at_once(make: Make, line: int) -> None:
    file = make(source_marks=json.dumps({TRAIN: [[9, 9, "convert"]]})).steps(100, python=7.0, compute=3.0)
    file.detail("sample", 690, state="python", stack=file.stack(f"{TRAIN}:{line} to_batch"))
    f = only(file)
    assert (f.id, advice(f)) == ("TP302", "anywhere")
    assert ("np.stack(rows)" in f.fix.splitlines()[0]) == (line == 9)


def transfers(make: Make, mechanism: str = "python", **options: str) -> RunFile:
    """A phase called transfer that computes; a sleep and less Python elsewhere."""
    file = make(**options).steps(150, {("transfer", mechanism): 5.0, ("other", "blocked"): 4.0}, python=3.0)
    file.detail("sample", 600, phase="other", state="blocked", stack=file.stack(f"{TRAIN}:9 wait"), code=230)
    file.detail("sample", 450, state="python", stack=file.stack(f"{TRAIN}:30 tokens"))
    if mechanism == "python":
        file.detail("sample", 750, phase="transfer", state="python", stack=file.stack(f"{TRAIN}:60 pack"))
    return file


def test_python_in_a_transfer_to_no_device_is_the_loops_own(make: Make) -> None:
    found = said(transfers(make))
    f = found.findings[0]
    assert found.verdict.finding == f.id == "TP302" and f.where == "train.py:60"
    assert f.cost_ms_per_step == pytest.approx(8.0, abs=0.01) and f.causes == ("h2d_copy", "python")
    assert f.params["moving"] == pytest.approx(0.625)
    fed = [f for f in said(transfers(make, feeds_device="1")).findings if f.id == "TP302"]
    assert [f.cost_ms_per_step for f in fed] == [pytest.approx(3.0, abs=0.01)]


@pytest.mark.parametrize(
    ("python", "native", "told", "causes"),
    [
        (4.0, 3.0, "TP302", ("python", "compute")),
        (2.0, 6.0, "TP310", ("compute", "python")),
        (0.8, 0.7, "TP302", ("python", "compute")),  # neither alone is a tenth
    ],
)
def test_a_function_of_python_and_native_code_is_told_once(
    make: Make, python: float, native: float, told: str, causes: tuple[str, ...]
) -> None:
    cells = {("other", "python"): python, ("other", "native"): native, ("optimizer", "native"): 2.0}
    file = make().steps(100, cells, compute=5.0)
    file.detail("sample", 100 * python, phase="other", state="python", stack=file.stack(f"{TRAIN}:6 features"))
    argsort = file.stack("/x/site-packages/numpy/core/fromnumeric.py:1133 argsort", f"{TRAIN}:7 features")
    file.detail("sample", 100 * native, phase="other", state="native", stack=argsort)
    f = only(file)
    assert (f.id, f.causes) == (told, causes) and f.cost_ms_per_step == pytest.approx(python + native, abs=0.01)
    less = f.params["native" if told == "TP302" else "python"]
    assert less == pytest.approx(min(python, native) / (python + native))


@pytest.mark.parametrize(
    ("outer", "saved"),
    [
        ((f"{TRAIN}:11 clip", f"{TRAIN}:19 main"), 1.0),  # the second calls the first
        ((f"{TRAIN}:19 main",), 0.6),  # another matter
        ((f"{TRAIN}:40 train", f"{TRAIN}:19 main"), 0.6),  # which calls all
    ],
)
def test_what_one_of_two_functions_saves_is_with_the_other_where_that_calls_it(
    make: Make, outer: tuple[str, ...], saved: float
) -> None:
    file = make().steps(100, {("other", "python"): 5.0}, compute=5.0)
    second = outer[0].replace(":11", ":13").replace(":40", ":42") if len(outer) > 1 else f"{TRAIN}:13 clip"
    norm = file.stack(f"{TRAIN}:8 grad_norm", *outer)
    file.detail("sample", 300, phase="other", state="python", stack=norm, count=30)
    clip = file.stack(second, f"{TRAIN}:19 main")
    file.detail("sample", 200, phase="other", state="python", stack=clip, count=20)
    step = file.stack("/x/site-packages/torch/optim/sgd.py:9 SGD.step", f"{TRAIN}:44 train", f"{TRAIN}:19 main")
    file.detail("sample", 500, phase="optimizer", state="native", stack=step, count=50)
    f = only(file)
    assert f.id == "TP302" and f.fix_share == pytest.approx(saved, abs=0.01)


def test_two_functions_one_of_each_kind_are_told_apart(make: Make) -> None:
    file = make().steps(100, {("other", "python"): 4.0, ("other", "native"): 4.0, ("optimizer", "native"): 2.0})
    file.detail("sample", 400, phase="other", state="python", stack=file.stack(f"{TRAIN}:6 tokens"))
    file.detail("sample", 400, phase="other", state="native", stack=file.stack(f"{TRAIN}:9 auc"))
    assert {f.id: f.where for f in said(file).findings} == {"TP302": "train.py:6", "TP310": "train.py:9"}


def test_the_verdict_says_that_a_larger_row_has_no_finding(make: Make) -> None:
    verdict = said(transfers(make, "native")).verdict
    assert verdict.finding == "TP301" and verdict.text.endswith("; in addition, 42% is h2d_copy: unexplained")
    assert "h2d_copy" not in said(transfers(make)).verdict.text
    beside_work = transfers(make, "native").steps(150, compute=12.0)  # now the largest row is work: no trouble
    assert said(beside_work).verdict.text.endswith("; in addition, 21% is h2d_copy: unexplained")


def test_torchs_own_python_is_no_warning(make: Make) -> None:
    file = make().steps(1000, compute=0.7, python=0.7)
    torch = file.stack("/x/site-packages/torch/nn/functional.py:1 relu", f"{TRAIN}:12 Net.forward")
    file.detail("sample", 700, state="python", stack=torch)
    assert [(f.slug, f.severity) for f in said(file).findings] == [("framework-python", "info")]


def metric(make: Make, *, optimizer: float = 2.0, **options: str) -> RunFile:
    """A metric in NumPy: native code in a function of the user's, outside of the phases."""
    file = make(**options).steps(100, {("other", "native"): 37.0, ("optimizer", "native"): optimizer}, compute=5.0)
    clip = file.stack("/x/site-packages/torch/nn/utils/clip_grad.py:40 clip_grad_norm_", f"{TRAIN}:9 <module>")
    file.detail("sample", 200, phase="other", state="native", stack=clip)
    at = file.stack("/x/site-packages/numpy/core/fromnumeric.py:1133 argsort", f"{TRAIN}:4 auc", f"{TRAIN}:15 <module>")
    return file.detail("sample", 3500, phase="other", state="native", stack=at)


def test_host_compute_names_the_users_function(make: Make) -> None:
    f = only(metric(make))
    assert (f.id, f.severity, f.where) == ("TP310", "critical", "train.py:4")
    assert (
        f.cost_ms_per_step == pytest.approx(37 * 35 / 37, abs=0.1)
        and "argsort called by auc (train.py:4)" in f.params["place"]
    )
    assert f.variant == "between_phases"  # what it computes is not known


@pytest.mark.parametrize("rare", [True, False])
def test_compute_of_few_steps_is_told_with_their_number(make: Make, rare: bool) -> None:
    """Once an epoch, seen by one sample in each of them: the exact times between the phases tell the steps; a model
    whose batches differ does not."""
    file = make()
    for step in range(300):
        other = 5.0 if not rare else 0.0 if step % 30 else 150.0
        file.step({("other", "native"): other, ("optimizer", "native"): 1.0}, compute=2.0 + 9.0 * (step % 4 == 0))
    sort = file.stack("/x/site-packages/numpy/core/fromnumeric.py:1133 argsort", f"{TRAIN}:11 reorder")
    file.detail("sample", 1500, phase="other", state="native", stack=sort, count=10)
    f = only(file)
    assert f.id == "TP310" and f.steps_affected == (10 if rare else 300)
    assert f.cost_ns == pytest.approx(1500e6, rel=0.02)
    assert f.variant == ("rarely" if rare else "between_phases") and bool(f.params["few"]) == rare


@pytest.mark.parametrize("beside", ["sleep", "callback"])
def test_what_else_few_steps_have_between_the_phases_is_not_the_computes(make: Make, beside: str) -> None:
    file = make()
    for step in range(300):
        rare = 0.0 if step % 30 else 150.0
        mechanism = "blocked" if beside == "sleep" else "python"
        file.step({("other", "native"): 5.0, ("other", mechanism): rare, ("optimizer", "native"): 1.0}, compute=5.0)
    metric = file.stack("/x/site-packages/numpy/core/fromnumeric.py:1133 argsort", f"{TRAIN}:11 metric")
    file.detail("sample", 1500, phase="other", state="native", stack=metric, count=300)
    f = next(f for f in said(file).findings if f.id == "TP310")
    assert (f.steps_affected, f.variant) == (300, "between_phases")


@pytest.mark.parametrize(("hook", "workers"), [("on_after_batch_transfer", True), ("on_before_zero_grad", False)])
def test_what_a_hook_does_to_a_batch_can_be_done_by_workers(make: Make, hook: str, workers: bool) -> None:
    file = make().steps(100, {("other", "native"): 5.0, ("optimizer", "native"): 1.0}, compute=5.0)
    augment = file.stack(f"{TRAIN}:11 augment", f"{TRAIN}:21 Net.{hook}", f"{TRAIN}:90 <module>")
    f = only(file.detail("sample", 500, phase="other", state="native", stack=augment, count=100))
    assert (f.id, f.variant) == ("TP310", "before_the_model" if workers else "between_phases")
    file = make().steps(100, {("other", "python"): 5.0, ("optimizer", "native"): 1.0}, compute=5.0)
    augment = file.stack(f"{TRAIN}:11 augment", f"{TRAIN}:21 Net.{hook}", f"{TRAIN}:90 <module>")
    f = only(file.detail("sample", 500, phase="other", state="python", stack=augment, count=100))
    assert (f.id, advice(f)) == ("TP302", "of_batch" if workers else "anywhere")


@pytest.mark.parametrize("by_lightning", [False, True])
def test_a_metric_beside_the_model_is_told_wherever_the_step_is_called_from(make: Make, by_lightning: bool) -> None:
    """Lightning calls all of a training_step within the optimizer's step."""
    optimizer = ("/x/site-packages/torch/optim/adam.py:9 Adam.step", "/x/site-packages/torch/optim/optimizer.py:5 run")
    step = (f"{TRAIN}:8 Net.training_step", *(optimizer if by_lightning else ()), f"{TRAIN}:90 <module>")
    module = "/x/site-packages/torch/nn/modules/module.py:1520 Module._call_impl"
    file = make().steps(100, {("forward", "native"): 6.0}, compute=6.0)
    layer = file.stack("/x/site-packages/torch/nn/modules/linear.py:9 Linear.forward", module, *step)
    file.detail("sample", 300, phase="forward", state="native", stack=layer)
    metric = file.stack(f"{TRAIN}:4 f1", *step)
    (f,) = said(file.detail("sample", 300, phase="forward", state="native", stack=metric)).findings
    assert (f.id, f.severity, f.where) == ("TP310", "info", "train.py:4") and f.cost_ms_per_step > 2.5


def test_compute_of_every_third_step_can_be_done_more_seldom(make: Make) -> None:
    file = make()
    for step in range(300):
        file.step({("other", "native"): 0.0 if step % 3 else 15.0, ("optimizer", "native"): 1.0}, compute=5.0)
    metric = file.stack("/x/site-packages/numpy/core/fromnumeric.py:1133 argsort", f"{TRAIN}:11 metric")
    f = only(file.detail("sample", 1500, phase="other", state="native", stack=metric, count=100))
    assert (f.steps_affected, f.variant) == (100, "between_phases")


def test_host_compute_is_not_said_where_it_cannot_be_told(make: Make) -> None:
    for off in (metric(make).tier("stacks", "off", "no"), metric(make, feeds_device="1")):
        found = said(off)
        assert "TP310" in {a.id for a in found.abstained} and not [f for f in found.findings if f.id == "TP310"]
    by_hand = said(metric(make, optimizer=0.0))  # its update of the weights is in `other` too
    assert [(f.id, f.severity) for f in by_hand.findings] == [("TP310", "info")]
    few = make().steps(100, {("other", "native"): 37.0, ("optimizer", "native"): 2.0})
    assert unsure(few, "TP310") == "native_unseen"


def test_batches_that_the_loop_makes_itself_are_told_from_the_model(make: Make) -> None:
    """Both are called forward: what ends with a backward."""
    model = ("/x/site-packages/torch/nn/modules/module.py:1520 Module._call_impl", f"{TRAIN}:9 train")
    resize = ("/x/site-packages/PIL/Image.py:2100 Image.resize", f"{TRAIN}:30 make_batch", f"{TRAIN}:8 train")
    file = make().steps(100, {("forward", "native"): 10.0, ("optimizer", "native"): 2.0}, compute=8.0)
    file.detail("sample", 600, state="native", stack=file.stack(*resize))
    file.detail("sample", 400, state="native", stack=file.stack("/x/numpy_like/net.py:4 Net.forward", *model))
    f = only(file)
    assert (f.id, f.variant, f.where) == ("TP310", "before_the_model", "train.py:30")
    assert f.cost_ms_per_step == pytest.approx(6.0, abs=0.01)
    inside = make().steps(100, {("forward", "native"): 10.0, ("optimizer", "native"): 2.0}, compute=8.0)
    inside.detail("sample", 900, state="native", stack=inside.stack(resize[0], f"{TRAIN}:40 Net.forward", *model))
    assert loud(inside) == []  # the model's own


def test_an_operation_with_a_backward_of_its_own_is_a_part_of_the_model_or_its_loss(make: Make) -> None:
    file = make().steps(100, {("forward", "native"): 10.0, ("optimizer", "native"): 2.0}, compute=8.0)
    loss = ("/x/site-packages/torch/autograd/function.py:575 Function.apply", f"{TRAIN}:8 train")
    net = ("/x/site-packages/torch/nn/modules/module.py:1520 Module._call_impl", f"{TRAIN}:8 train")
    numpy = "/x/site-packages/numpy/_core/_methods.py:49 _sum"
    file.detail("sample", 500, state="native", stack=file.stack(numpy, f"{TRAIN}:30 Loss.forward", *loss))
    file.detail("sample", 500, state="native", stack=file.stack(f"{TRAIN}:40 Net.forward", *net))
    f = next(f for f in said(file).findings if f.id == "TP310")
    assert (f.variant, f.severity, f.where) == ("own_operation", "info", "train.py:30")


@pytest.mark.parametrize(("phase", "makes"), [("forward", False), ("other", True)])
def test_python_after_the_model_makes_no_batch_unless_it_is_the_next_one(make: Make, phase: str, makes: bool) -> None:
    file = make().steps(100, {(phase, "python"): 4.0, ("forward", "native"): 3.0}, compute=6.0)
    match = file.stack(f"{TRAIN}:60 match", f"{TRAIN}:9 train")
    file.detail("sample", 400, phase=phase, state="python", stack=match)
    module = "/x/site-packages/torch/nn/modules/module.py:1520 Module._call_impl"
    layer = file.stack("/x/site-packages/torch/nn/modules/linear.py:9 Linear.forward", module, f"{TRAIN}:8 train")
    f = only(file.detail("sample", 300, phase="forward", state="native", stack=layer))
    assert (f.id, f.where, advice(f)) == ("TP302", "train.py:60", "anywhere" if makes else "after_the_model")


def test_python_before_the_model_is_said_to_be_there(make: Make) -> None:
    def tokens(*outer: str) -> tuple[bool, str]:
        file = make().steps(100, compute=6.0, python=4.0)
        file.detail("sample", 350, state="python", stack=file.stack(f"{TRAIN}:60 count_tokens", *outer))
        layer = "/x/site-packages/torch/nn/modules/linear.py:134 Linear.forward"
        call = "/x/site-packages/torch/nn/modules/module.py:1520 Module._call_impl"
        file.detail("sample", 20, state="python", stack=file.stack(layer, call, f"{TRAIN}:9 train"))
        f = only(file)
        return bool(f.params["early"]), advice(f) or f.variant

    assert tokens(f"{TRAIN}:8 train") == (True, "before_the_model")
    inside = tokens("/x/site-packages/torch/nn/modules/module.py:1520 Module._call_impl", f"{TRAIN}:8 train")
    assert inside == (False, "in_model")
    assert tokens(f"{TRAIN}:10 train") == (False, "loss_in_pieces")


def test_host_python_abstains_without_samples(make: Make) -> None:
    few = make().steps(100, compute=6.0, python=4.0)
    few.detail("sample", 8, state="python", count=2, stack=few.stack(f"{TRAIN}:60 f"))
    assert unsure(few, "TP302") == "python_unseen"
    off = make().steps(100, compute=6.0, unknown=4.0).tier("gil_holds", "off", "sampler_hz=0")
    assert "sampler_hz=0" in next(a.why for a in said(off).abstained if a.id == "TP302")


def of_150_steps(make: Make, python_ms: float, mine: int, others: int) -> RunFile:
    """4 ms each. `mine`: samples in acc; `others`: in the model, and as many of them as tell `python_ms` in torch's."""
    file = make().steps(150, {("forward", "python"): python_ms, ("backward", "native"): 4.0 - python_ms})
    each = 600 / (mine + others)
    theirs = max(0, round(others * python_ms / 4.0))
    file.detail("sample", mine * each, state="python", count=mine, stack=file.stack(f"{TRAIN}:6 acc", f"{TRAIN}:9 fit"))
    torch = {"state": "python", "count": theirs, "stack": file.stack(TORCH)}
    file.detail("sample", theirs * each, **torch)
    file.detail("sample", (others - theirs) * each, phase="backward", state="native", count=others - theirs)
    return file


@pytest.mark.parametrize(
    ("python_ms", "mine", "others", "why"),
    [
        (1.6, 8, 27, "only 8 of 35 samples in acc (train.py:6): too few samples, run longer to tell"),
        # By the row it takes 6 %, by the samples 14 %: too few to tell which, though acc has enough to be named.
        (0.44, 13, 82, "only 13 of 95 samples in acc (train.py:6): too few samples, run longer to tell"),
        (1.6, 2, 33, ""),  # of much Python, little is acc's
        (1.6, 9, 111, ""),  # of 120 a function that takes a tenth has 12
    ],
)
def test_a_short_run_that_does_not_tell_whose_the_python_is_does_not_deny_it(
    make: Make, python_ms: float, mine: int, others: int, why: str
) -> None:
    found = said(of_150_steps(make, python_ms, mine, others))
    assert found.findings == () and next((a.why for a in found.abstained if a.id == "TP302"), "") == why
    if mine + others == 35:  # too few for any split
        told = "on the CPU for 100% of step time; too few samples to tell Python from compute"
        assert found.verdict.look == ""
        assert found.verdict.text == told + ("" if why else "; no other trouble found above 10%")
        assert found.verdict.kind == "none"
        return
    whose = f"; too few samples to attribute {python_ms / 4:.0%} python: run longer"
    assert found.verdict.text.endswith(whose if why else "; no trouble found above 10%")
    assert found.verdict.kind == ("partly" if why else "healthy")


@pytest.mark.parametrize(("mine", "others"), [(8, 30), (80, 300)])
def test_a_short_run_does_not_deny_what_is_computed_beside_the_model(make: Make, mine: int, others: int) -> None:
    file = make().steps(150, {("other", "native"): 1.0, ("optimizer", "native"): 0.2}, compute=3.0)
    auc = file.stack("/x/site-packages/numpy/core/fromnumeric.py:1 argsort", f"{TRAIN}:4 auc", f"{TRAIN}:9 fit")
    file.detail("sample", 150, phase="other", state="native", count=mine, stack=auc)
    file.detail("sample", 450, phase="forward", state="native", count=others)
    found = said(file)
    if mine >= 10:
        assert [f.id for f in found.findings] == ["TP310"]
        return
    assert found.findings == () and "only 8 of 38 samples in" in abstained(file, "TP310")
    assert found.verdict.text.endswith("; too few samples to attribute 24% compute beside the model: run longer")


def test_what_costs_as_much_as_a_warning_is_told_also_where_the_python_is_nobodys(make: Make) -> None:
    file = make().steps(150, {("forward", "python"): 0.66, ("backward", "native"): 0.7, ("fetch", "python"): 0.64})
    file.loader(1, fetches=150, wait=97)
    file.detail("sample", 96, state="python", count=8, stack=file.stack(f"{TRAIN}:6 acc", f"{TRAIN}:9 fit"))
    file.detail("sample", 132, phase="backward", state="native", count=11)
    found = said(file)
    assert any(a.id == "TP302" and a.whose for a in found.abstained)
    assert found.verdict.text.startswith("on the CPU for 68% of step time; too few samples to tell Python from compute")
    assert (
        found.verdict.text.endswith("; no warning, but data-starved takes 32% of step time")
        and found.verdict.look == "TP101"
    )
