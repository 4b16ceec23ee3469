"""TP302 of several functions that the loop calls, none of them notable by itself, on runs made by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from runfiles import RunFile
from trainperf.findings import Finding
from verdicts import TRAIN, Make, advice, said

RELU = "/x/site-packages/torch/nn/functional.py:1 relu"
TENSOR = "/x/site-packages/torch/_tensor.py:1 Tensor.__repr__", "/x/site-packages/torch/_tensor_str.py:9 _str"
COPY = "/usr/lib/python3.11/copy.py:1 _deepcopy_dict", "/usr/lib/python3.11/copy.py:2 deepcopy"
NO_GRAD = "/x/site-packages/torch/utils/_contextlib.py:124 context_decorator.<locals>.decorate_context"
MODULES = "/x/site-packages/torch/nn/modules"
CALL, LINEAR = f"{MODULES}/module.py:1520 Module._call_impl", "linear.py:125 Linear.forward"
LAYER = (RELU, f"{MODULES}/{LINEAR}", CALL)


def at(line: int) -> tuple[str, ...]:
    return f"{TRAIN}:{line} fit", f"{TRAIN}:90 <module>"


LOOP = at(8)


@dataclass(frozen=True)
class Seen:
    """`ms` of a stack in all steps together, which take 1,000."""

    ms: int
    stack: tuple[str, ...]
    state: str = "python"
    phase: str = "forward"
    count: int = 20


def called(*names: str, ms: int = 45, line: int = 20) -> list[Seen]:
    """By the loop, of so much Python each."""
    return [Seen(ms, (f"{TRAIN}:{line + i} {name}", *LOOP)) for i, name in enumerate(names)]


def model(line: int = 8, *, ms: int = 600) -> Seen:
    return Seen(ms, (*LAYER, *at(line)), "native")


def written(file: RunFile, *seen: Seen) -> RunFile:
    """100 steps of 10 ms, of which 2 are Python before the backward."""
    file.steps(100, {("forward", "native"): 3.0, ("backward", "native"): 5.0, ("forward", "python"): 2.0})
    for one in seen:
        stack = file.stack(*one.stack)
        file.detail("sample", one.ms, state=one.state, stack=stack, count=one.count, phase=one.phase)
    rest = 200 - sum(one.ms for one in seen if one.state == "python")
    file.detail("sample", rest, state="python", stack=file.stack(*LAYER, *LOOP))
    return file


def findings(file: RunFile, *seen: Seen) -> list[Finding]:
    return [f for f in said(written(file, *seen)).findings if f.id == "TP302"]


@pytest.mark.parametrize(
    ("layer", "told"),
    [
        (LINEAR, "train.py:30"),
        ("loss.py:1297 CrossEntropyLoss.forward", ""),  # no layer: they may be the model
        ("", ""),
    ],
)
def test_functions_that_one_call_has_together_are_told_as_that(make: Make, layer: str, told: str) -> None:
    file = make().steps(100, compute=8.0, python=2.0)
    if layer:
        file.detail("sample", 600, state="native", stack=file.stack(RELU, f"{MODULES}/{layer}", CALL, *LOOP))
    for line, name in enumerate(("ngrams", "clip", "count")):
        stack = (f"{TRAIN}:{20 + line} {name}", f"{TRAIN}:30 score", *LOOP)
        file.detail("sample", 60, state="python", stack=file.stack(*stack), count=20)
    file.detail("sample", 20, state="python", stack=file.stack(RELU, *LOOP))
    found = [f for f in said(file).findings if f.id == "TP302"]
    assert [f.where for f in found] == ([told] if told else [])
    for f in found:
        assert f.share == pytest.approx(0.18, abs=0.001) and f.params["called"]
        assert f.params["place"].startswith("score (train.py:30) called by fit") and advice(f) == "anywhere"
        assert (f.params["samples"], f.params["functions"][0]["share"]) == (60, pytest.approx(1 / 3))


def test_a_decorator_of_pytorchs_is_between_no_two_functions(make: Make) -> None:
    seen = [Seen(60, (f"{TRAIN}:{20 + i} {name}", NO_GRAD, f"{TRAIN}:30 score", *LOOP)) for i, name in enumerate("abc")]
    (found,) = findings(make(), model(), *seen)
    assert found.where == "train.py:30" and found.share == pytest.approx(0.18, abs=0.001)


@pytest.mark.parametrize(("each", "told"), [(48, True), (41, True), (38, False)])
def test_functions_that_the_loop_calls_are_told_together_where_none_is_notable(
    make: Make, each: int, told: bool
) -> None:
    """Without what the loop's own lines take beside them, or the model's: the advice is of neither."""
    own = Seen(40, LOOP), Seen(15, (f"{TRAIN}:50 Net.forward", CALL, *LOOP))
    found = findings(make(), model(), *called("bleu", "recall", "auc", ms=each), *own)
    assert len(found) == told
    for f in found:
        assert f.where == "train.py:20" and f.fix_share == 1.0 and f.severity == "warning"
        assert f.share == pytest.approx(3 * each / 1000, abs=0.001)
        assert (f.variant, f.params["functions"], advice(f)) == ("together", 3, "anywhere")
        assert (f.params["first"], f.params["second"]) == ("bleu (train.py:20)", "recall (train.py:21)")


def test_of_many_small_functions_none_is_named_for_all(make: Make) -> None:
    (found,) = findings(make(), model(), *called(*(f"f{i}" for i in range(14)), ms=10))
    assert (found.variant, found.params["functions"], found.params["first"]) == ("together", 14, "f0 (train.py:20)")


@pytest.mark.parametrize("below", [TENSOR[::-1], COPY])
def test_advice_is_not_of_the_costliest_alone(make: Make, below: tuple[str, ...]) -> None:
    top = Seen(50, (*below, f"{TRAIN}:40 show", *LOOP))
    (found,) = findings(make(), model(), top, *called("bleu", "recall", "auc"))
    assert advice(found) == "anywhere" and found.share == pytest.approx(0.185, abs=0.001)


def test_what_the_costliest_calls_of_a_library_is_named(make: Make) -> None:
    (found,) = findings(make(), model(), Seen(60, (*COPY, f"{TRAIN}:40 keep", *LOOP)), *called("bleu", "recall"))
    assert found.params["first"] == "copy.deepcopy called by keep (train.py:40)"


def split_heads(line: int, ms: int, state: str) -> list[Seen]:
    """By a function that calls layers on lines 40 and 48."""
    apply = f"{TRAIN}:{line} apply_model"
    names = ("split_heads", "attend", "merge_heads")
    return [Seen(ms, (f"{TRAIN}:{20 + i} {name}", apply, *LOOP), state) for i, name in enumerate(names)]


def test_what_lies_between_layers_is_of_the_model(make: Make) -> None:
    layers = [Seen(200, (*LAYER, f"{TRAIN}:{line} apply_model", *LOOP), "native") for line in (40, 48)]
    assert not findings(make(), *layers, *split_heads(43, 45, "python"))
    again = [replace(one, phase="backward", ms=1) for one in split_heads(43, 45, "native")]  # by checkpointing
    assert not findings(make(), *layers, *split_heads(43, 45, "python"), *again)
    assert findings(make(), *layers, *split_heads(49, 45, "python"))  # after them it is not


@pytest.mark.parametrize("updates", [True, False])
def test_what_the_loop_does_between_two_models_is_its_own(make: Make, updates: bool) -> None:
    """The loop is known by its update."""
    step = Seen(100, ("/x/site-packages/torch/optim/sgd.py:9 SGD.step", *at(20)), "native", "optimizer")
    score = [Seen(60, (f"{TRAIN}:{30 + i} {name}", f"{TRAIN}:40 score", *at(10))) for i, name in enumerate("abc")]
    found = findings(make(), model(8, ms=150), model(14, ms=150), *score, *([step] if updates else []))
    assert [f.where for f in found] == (["train.py:40"] if updates else [])


def test_what_a_functional_model_calls_is_of_the_model(make: Make) -> None:
    """net() runs PyTorch's functional layers by block(), and others by hand."""
    net = (f"{TRAIN}:31 net", *at(10))
    names = ("attend", "norm", "rotate")
    parts = [Seen(45, (f"{TRAIN}:{70 + i} {name}", *net)) for i, name in enumerate(names)]
    assert not findings(
        make(), model(11, ms=100), Seen(200, (RELU, f"{TRAIN}:60 block", *net), "native"), *parts, Seen(20, net)
    )


def test_a_batch_that_is_normalized_by_pytorch_is_no_model(make: Make) -> None:
    batch = (f"{TRAIN}:31 get_batch", *at(7))
    parts = [Seen(60, (f"{TRAIN}:{70 + i} {name}", *batch)) for i, name in enumerate(("tokenize", "mask", "crop"))]
    normalize = Seen(6, (RELU.replace("relu", "normalize"), f"{TRAIN}:60 augment", *batch), "native", count=2)
    (found,) = findings(make(), model(), *parts, normalize)
    assert found.where == "train.py:31" and found.params["early"]


def test_several_run_before_the_model_only_if_nearly_all_of_them_do(make: Make) -> None:
    early = [Seen(45, (f"{TRAIN}:{20 + i} {name}", *at(7))) for i, name in enumerate(("tokenize", "mask", "crop"))]
    (found,) = findings(make(), model(), *early)
    assert advice(found) == "before_the_model" and found.params["early"]
    (found,) = findings(make(), model(), early[0], *called("bleu", "recall", ms=50))
    assert advice(found) == "anywhere" and not found.params["early"]


def test_native_code_of_several_is_said(make: Make) -> None:
    file = make().steps(
        100,
        {("forward", "native"): 3.0, ("backward", "native"): 5.0, ("other", "python"): 1.1, ("other", "native"): 0.9},
    )
    file.detail("sample", 300, state="native", stack=file.stack(*LAYER, *LOOP), count=200)
    for i, name in enumerate(("bleu", "recall", "auc")):
        stack = f"{TRAIN}:{20 + i} {name}", *at(12)
        file.detail("sample", 36, state="python", stack=file.stack(*stack), phase="other", count=20)
        array = file.stack("/x/site-packages/numpy/core/x.py:1 sum", *stack)
        file.detail("sample", 30, state="native", stack=array, phase="other", count=20)
    (found,) = [f for f in said(file).findings if f.id == "TP302"]
    assert not found.params["fix"].params["loss"] and found.params["native"] == pytest.approx(0.45)


@pytest.mark.parametrize("name", ["timed.<locals>.wrapper", "Timed.__call__", "wrapper"])
def test_the_users_decorator_is_none_of_the_functions(make: Make, name: str) -> None:
    """It calls another function from one line for each line that it is called from; of one that a function made which
    has ended, that is not asked."""
    wrapper = f"/home/me/job/util.py:5 {name}"
    for apart in (1, 0) if "<locals>" in name else (1,):
        seen = [Seen(45, (f"{TRAIN}:{20 + i} f{i}", wrapper, *at(12 + apart * i))) for i in range(3)]
        (found,) = findings(make(), model(), *seen)
        assert found.where == "train.py:20" and found.params["functions"] == 3


@pytest.mark.parametrize("name", ["Evaluator.__call__", "fit.<locals>.score"])
def test_a_function_whose_one_line_calls_several_is_no_decorator(make: Make, name: str) -> None:
    seen = [Seen(38, (one.stack[0], f"{TRAIN}:60 {name}", *at(12))) for one in called("a", "b", "c")]
    (found,) = findings(make(), model(), *seen)
    assert found.where == "train.py:60" and found.params["called"]


def test_losses_in_tensors_are_not_told_together(make: Make) -> None:
    python = called("focal", "dice", "boundary")
    native = [Seen(200, one.stack, "native") for one in python]
    assert not findings(make(), model(ms=200), *python, *native)
    assert findings(make(), model(ms=200), *python, *(Seen(20, one.stack, "native") for one in python))


def test_where_one_function_may_be_large_too_little_was_seen(make: Make) -> None:
    large, small = called("score", "other", ms=60)
    file = make()
    assert not findings(file, model(), Seen(130, large.stack, count=8), Seen(40, small.stack, count=32))


def test_few_samples_tell_nothing_of_several(make: Make) -> None:
    few = [Seen(45, one.stack, count=6) for one in called("bleu", "recall", "auc")]
    result = said(written(make(), replace(model(), count=200), *few))
    assert not [f for f in result.findings if f.id == "TP302"]
    (abstained,) = [a for a in result.abstained if a.id == "TP302"]
    assert (abstained.variant, abstained.params["samples"]) == ("python_in_few", 18)
    assert "too few samples to attribute 20% python: run longer" in result.verdict.text
    assert findings(make(), model(), *(Seen(45, one.stack, count=7) for one in few))


@pytest.mark.parametrize(("samples", "abstains"), [(8, True), (20, False)])
def test_of_small_functions_that_are_not_told_it_is_said_whether_they_were_seen_enough(
    make: Make, samples: int, abstains: bool
) -> None:
    """11 % together are not told; of few samples it could as well be more."""
    small = [Seen(37, one.stack, count=samples) for one in called("bleu", "recall", "auc")]
    result = said(written(make(), model(), *small))
    assert not [f for f in result.findings if f.id == "TP302"]
    assert any(a.id == "TP302" for a in result.abstained) == abstains


@pytest.mark.parametrize("read", [6, 8])
def test_of_a_long_run_whose_samples_could_not_be_read_it_is_not_said_to_run_longer(make: Make, read: int) -> None:
    """Where enough were read to tell, it is said as well."""
    file = make().steps(20_000, {("forward", "native"): 3.0, ("backward", "native"): 5.0, ("forward", "python"): 2.0})
    file.detail("sample", 60_000, state="native", stack=file.stack(*LAYER, *LOOP), count=4_000)
    for i, name in enumerate(("bleu", "recall", "auc")):
        stack = file.stack(f"{TRAIN}:{20 + i} {name}", *LOOP)
        file.detail("sample", 20 * read, state="python", stack=stack, count=read)
    file.detail("sample", 6_000, state="python", count=300)
    result = said(file)
    if read == 8:
        (found,) = [f for f in result.findings if f.id == "TP302"]
        assert found.params["unread"] == pytest.approx(0.93, abs=0.005)
        return
    assert not [f for f in result.findings if f.id == "TP302"]
    (abstained,) = [a for a in result.abstained if a.id == "TP302"]
    assert abstained.variant == "python_unread"
    assert "it is unclear whose it is" in result.verdict.text


def test_the_loops_own_lines_are_no_functions_that_it_calls(make: Make) -> None:
    names = ("<genexpr>", "<lambda>", "fit.<locals>.<lambda>")
    assert not findings(make(), model(), *called(*names))
    within = [Seen(45, (f"{TRAIN}:20 f{i}.<locals>.<lambda>", f"{TRAIN}:30 f{i}", *LOOP)) for i in range(3)]
    assert findings(make(), model(), *within)


def test_an_optimizers_step_is_no_function_beside_the_model(make: Make) -> None:
    file = make().steps(
        100,
        {("forward", "native"): 3.0, ("backward", "native"): 5.0, ("forward", "python"): 0.9}
        | {("optimizer", "python"): 1.1},
    )
    file.detail("sample", 600, state="native", stack=file.stack(*LAYER, *LOOP))
    for phase, name, ms in (("optimizer", "a", 55), ("optimizer", "b", 55), ("forward", "c", 45), ("forward", "d", 45)):
        file.detail(
            "sample", ms, state="python", stack=file.stack(f"{TRAIN}:{ms} {name}", *LOOP), phase=phase, count=20
        )
    assert not [f for f in said(file).findings if f.id == "TP302"]
