"""TP311 on runs made by hand: which optimizers could be faster, and what makes them so."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from runfiles import RunFile
from trainperf.findings.model import Finding
from trainperf.hooks.describe import describe_optimizer
from trainperf.prove.candidates import settings_of
from verdicts import TRAIN, Make, said

PLAIN: dict[str, Any] = {
    "class": "AdamW",
    "module": "torch.optim.adamw",
    "groups": 1,
    "parameters": 122,
    "device": "cpu",
    "foreach": False,
    "fused": False,
}


def _run(make: Make, share: float, **options: Any) -> RunFile:
    file = make()
    file.object(1, "optimizer", **PLAIN | options)
    file.steps(100, {("optimizer", "native"): 8 * share, ("optimizer", "python"): 2 * share}, compute=10 - 10 * share)
    stack = file.stack("/x/site-packages/torch/optim/adamw.py:9 AdamW.step", f"{TRAIN}:12 train")
    return file.detail("sample", 80, phase="optimizer", state="native", stack=stack)


def _told(file: RunFile) -> Finding | None:
    return next((f for f in said(file).findings if f.id == "TP311"), None)


def test_a_plain_one_that_takes_much_is_told_not_warned_of(make: Make) -> None:
    f = _told(_run(make, 0.4))
    assert f is not None and f.severity == "info" and f.where == "train.py:12"
    assert (f.variant, f.params["name"], f.params["one_by_one"]) == ("fused", "AdamW", True)
    assert f.params["parameters"] == 122


@pytest.mark.parametrize(("share", "saving"), [(0.12, "TP311"), (0.39, "TP304")])
def test_an_option_leads_where_it_saves_more_than_a_warning_costs(make: Make, share: float, saving: str) -> None:
    """Batches that were dropped before the first step were told instead, at 15 % of a run; this was 51 %."""
    file = make()
    file.object(1, "optimizer", **PLAIN)
    file.steps(100, {("optimizer", "native"): 4.0}, compute=6.0 - 10 * share, checkpoint=10 * share)
    found = said(file)
    assert found.verdict.finding == saving and [f.id for f in found.findings] == ["TP304", "TP311"]


@pytest.mark.parametrize("foreach", [True, False])
def test_a_group_for_each_parameter_is_a_warning(make: Make, foreach: bool) -> None:
    f = _told(_run(make, 0.5, groups=122, foreach=foreach))
    assert f is not None and f.severity == "warning" and f.share == pytest.approx(0.5)
    assert (f.variant, f.params["one_by_one"], f.params["groups"]) == ("fused_and_fewer_groups", not foreach, 122)


def test_small_parameters_without_a_fused_step_are_told_of_foreach(make: Make) -> None:
    f = _told(_run(make, 0.4, **{"class": "RMSprop", "elements": 122 * 2080, "updated": 122}))
    assert f is not None and (f.variant, f.severity, f.fix) == (
        "foreach",
        "info",
        "torch.optim.RMSprop(..., foreach=True)",
    )
    assert settings_of("TP311", f.fix) == {"foreach": True}


def test_of_what_size_and_kind_is_what_a_step_updates() -> None:
    weights = [torch.nn.Parameter(torch.zeros(size)) for size in (4, 400, 4000)]
    weights[2].requires_grad = False
    weights[0].grad = torch.ones(4)  # the second was not used in this step
    described = describe_optimizer(torch.optim.SGD(weights, lr=0.1, momentum=0.9))
    assert (described["updated"], described["elements"], described["plain"], described["momentum"]) == (
        1,
        4,
        True,
        True,
    )
    rare = torch.nn.Parameter(torch.zeros(4, 2))
    rare.grad = torch.ones(4, 2).to_sparse()
    described = describe_optimizer(torch.optim.Adagrad([rare]))
    assert (described["plain"], described["momentum"]) == (False, False)


def test_adagrad_has_a_fused_step_later_than_others(make: Make) -> None:
    assert _told(_run(make, 0.4, **{"class": "Adagrad"}).meta(torch="2.4.1")) is None
    f = _told(_run(make, 0.4, **{"class": "Adagrad"}).meta(torch="2.5.0"))
    assert f is not None and f.variant == "fused"


@pytest.mark.parametrize("options", [{"fused": True}, {"class": "RMSprop", "foreach": True}])
def test_many_groups_alone_are_told_where_each_has_its_row(make: Make, options: dict[str, Any]) -> None:
    f = _told(_run(make, 0.5, groups=61, **options))
    assert f is not None and f.severity == "warning" and f.variant == "fewer_groups"


@pytest.mark.parametrize(
    "options",
    [
        {"share": 0.26},  # as a healthy small loop has
        {"fused": True},
        {"fused": True, "groups": 2},
        {"class": "RMSprop"},  # of what size its parameters are is not known
        {"class": "RMSprop", "elements": 122 * 16384, "updated": 122},  # large temporary tensors cost more than calls
        {"class": "RMSprop", "elements": 122 * 2080, "updated": 122, "foreach": True},
        {"class": "RMSprop", "elements": 4 * 40_000, "updated": 4},  # the other 118 are frozen
        {"class": "RMSprop", "elements": 122 * 64, "updated": 122, "plain": False},  # complex, or differentiable
        {"class": "Adagrad", "plain": False},  # sparse gradients
        {"class": "SGD", "momentum": False},  # with two threads fused=True is slower
        {"class": "ASGD", "elements": 122 * 64, "updated": 122},  # slower with foreach
        {"class": "RMSprop", "groups": 122},  # each parameter has its own row, however it is grouped
        {"device": "cuda"},
        {"module": "__main__"},  # an AdamW of the user's own
        {"groups": None},  # of an older trainperf
    ],
)
def test_nothing_is_said_where_nothing_measured_helps(make: Make, options: dict[str, Any]) -> None:
    assert _told(_run(make, **{"share": 0.5} | options)) is None


STEP = "/x/site-packages/torch/optim/adamw.py:9 AdamW.step"
WRAPPER = "/x/site-packages/torch/optim/optimizer.py:520 Optimizer.profile_hook_step.<locals>.wrapper"


@pytest.mark.parametrize(
    ("calls", "title"),
    [
        ((WRAPPER,), "optimizer step hooks"),
        (("/x/site-packages/lightning/loop.py:9 closure", STEP, WRAPPER), "within the optimizer's step"),
    ],
)
def test_what_hooks_and_closures_do_in_its_step_is_not_its_own(make: Make, calls: tuple[str, ...], title: str) -> None:
    """A hook before the step, and one that Lightning's closure calls: 9 of 10 ms."""
    file = make()
    file.object(1, "optimizer", **PLAIN)
    file.steps(100, {("optimizer", "native"): 10.0}, compute=6.0)
    norms = file.stack("/x/site-packages/torch/functional.py:9 norm", f"{TRAIN}:40 norms", *calls, f"{TRAIN}:12 train")
    own = file.stack(STEP, WRAPPER, f"{TRAIN}:12 train")
    file.detail("sample", 900, phase="optimizer", state="native", stack=norms)
    file.detail("sample", 100, phase="optimizer", state="native", stack=own)
    (f,) = said(file).findings
    assert (f.id, f.where) == ("TP310", "train.py:40") and title in f.title
    assert f.cost_ms_per_step == pytest.approx(9.0, abs=0.01)


def test_a_step_of_the_users_own_is_no_hook_and_is_told(make: Make) -> None:
    file = make().object(1, "optimizer", **PLAIN | {"module": "__main__", "class": "Lion"})
    file.steps(100, {("optimizer", "native"): 10.0}, compute=6.0)
    step = file.stack(f"{TRAIN}:40 update", f"{TRAIN}:41 Lion.step", WRAPPER, f"{TRAIN}:12 train")
    hook = file.stack(f"{TRAIN}:50 norms", WRAPPER, f"{TRAIN}:12 train")
    file.detail("sample", 100, phase="optimizer", state="native", stack=hook)
    (f,) = said(file.detail("sample", 900, phase="optimizer", state="native", stack=step)).findings
    assert (f.id, f.severity, f.where) == ("TP311", "info", "train.py:40") and f.variant == "own_code"
    assert f.cost_ms_per_step == pytest.approx(9.0, abs=0.01)


NO_GRAD = "/x/site-packages/torch/utils/_contextlib.py:124 context_decorator.<locals>.decorate_context"
LION = f"{TRAIN}:41 main.<locals>.Lion.step"


@pytest.mark.parametrize(
    ("inner", "told"),
    [
        ((), True),
        ((f"{TRAIN}:40 main.<locals>.Lion.update",), True),
        ((f"{TRAIN}:40 main.<locals>.Lion.step.<locals>.<listcomp>",), True),
        ((f"{TRAIN}:40 norm.<locals>.<genexpr>", f"{TRAIN}:39 norm"), True),
        ((f"{TRAIN}:9 main.<locals>.closure",), False),
        ((f"{TRAIN}:9 <lambda>",), False),
        ((f"{TRAIN}:9 Net.forward", "/x/site-packages/torch/nn/modules/module.py:1790 Module._call_impl"), False),
    ],
)
def test_a_step_that_keeps_no_gradients_is_told_and_what_it_is_given_is_not_its_own(
    make: Make, inner: tuple[str, ...], told: bool
) -> None:
    """The usual way to write one: `@torch.no_grad() def step(self, closure=None)`."""
    file = make().object(1, "optimizer", **PLAIN | {"module": "__main__", "class": "Lion"})
    file.steps(100, {("optimizer", "native"): 10.0}, compute=6.0)
    step = file.stack(*inner, LION, NO_GRAD, WRAPPER, f"{TRAIN}:12 train")
    f = _told(file.detail("sample", 900, phase="optimizer", state="native", stack=step))
    assert (f is not None) == told


def test_time_of_which_there_is_no_sample_is_no_step_of_the_users(make: Make) -> None:
    file = make().object(1, "optimizer", **PLAIN | {"module": "__main__", "class": "Lion"})
    file.steps(100, {("optimizer", "native"): 9.0, ("optimizer", "python"): 5.0}, compute=6.0)
    f = _told(file.detail("sample", 900, phase="optimizer", state="native", stack=file.stack(LION, WRAPPER)))
    assert f is not None and f.cost_ms_per_step == pytest.approx(9.0, abs=0.01)


def test_a_hook_of_that_name_is_no_step_of_the_users_where_all_optimizers_are_torchs(make: Make) -> None:
    file = make().object(1, "optimizer", **PLAIN).object(2, "optimizer", **PLAIN | {"class": "SGD"})
    file.steps(100, {("optimizer", "native"): 9.0}, compute=6.0)
    hook = file.stack(f"{TRAIN}:41 EMA.step", WRAPPER, f"{TRAIN}:12 train")
    assert _told(file.detail("sample", 900, phase="optimizer", state="native", stack=hook)) is None


def test_an_older_torch_cannot_fuse_on_the_cpu(make: Make) -> None:
    assert _told(_run(make, 0.5).meta(torch="2.3.1")) is None


@pytest.mark.parametrize(
    ("second", "told"),
    [
        ({}, 244),  # as of a GAN
        ({"class": "SparseAdam"}, 0),  # which of the two takes the time is not known
        ({"module": "mine", "class": "Lion"}, 0),
    ],
)
def test_of_several_only_those_of_one_kind_are_told(make: Make, second: dict[str, Any], told: int) -> None:
    f = _told(_run(make, 0.5).object(2, "optimizer", **PLAIN | second))
    assert (f.params["parameters"] if f is not None else 0) == told
