"""TP707 of Lightning's self.log, on runs made by hand."""

from __future__ import annotations

from typing import Any

import pytest
from runfiles import RunFile
from verdicts import TRAIN, Make, lightning, said

SITE = "/x/site-packages"


FIT = (f"{SITE}/lightning/pytorch/strategies/strategy.py:391 Strategy.training_step", f"{TRAIN}:47 <module>")


STEP = f"{TRAIN}:15 Net.training_step"


def logging_calls(make: Make, *frames: str, ms: float = 6.0, of_ms: float = 10.0, phase: str = "forward") -> RunFile:
    """`ms` of Python in each step of `of_ms` stand at these frames."""
    file = make().steps(100, {(phase, "python"): ms}, compute=of_ms - ms)
    return file.detail("sample", 100 * ms, phase=phase, state="python", stack=file.stack(*frames, *FIT))


def log_call(package: str = "lightning/pytorch", call: str = "LightningModule.log") -> tuple[str, str]:
    file = f"{SITE}/{package}"
    result = f"{file}/trainer/connectors/logger_connector/result.py:412 _ResultCollection.log"
    return result, f"{file}/core/module.py:531 {call}"


@pytest.mark.parametrize("call", ["LightningModule.log", "log", "LightningModule.log_dict"])
@pytest.mark.parametrize("package", ["lightning/pytorch", "pytorch_lightning"])
def test_many_calls_of_self_log_are_named_with_their_line(make: Make, package: str, call: str) -> None:
    found = said(logging_calls(make, *log_call(package, call), STEP))
    f = found.findings[0]
    assert found.verdict.finding == f.id == "TP707" and (f.severity, f.cause) == ("critical", "python")
    assert f.where == "train.py:15" and f.variant == "log_calls" and f.params["each"] == pytest.approx(6e6, rel=0.01)
    assert f.cost_ms_per_step == pytest.approx(6.0, abs=0.01)
    assert "TP309" not in [f.id for f in found.findings]  # it is told


def test_native_code_below_self_log_is_its_cost_and_other_python_is_not(make: Make) -> None:
    file = make().steps(100, {("forward", "python"): 5.0, ("forward", "native"): 4.0}, compute=3.0)
    log = file.stack(*log_call(), STEP, *FIT)
    for state, ms in (("python", 400), ("native", 100)):
        file.detail("sample", ms, phase="forward", state=state, stack=log)
    file.detail("sample", 100, phase="forward", state="python", stack=file.stack(*FIT))
    file.detail("sample", 300, phase="forward", state="native", stack=file.stack(f"{TRAIN}:9 Net.training_step", *FIT))
    f = next(f for f in said(file).findings if f.id == "TP707")
    assert f.cost_ms_per_step == pytest.approx(5.0, abs=0.01) and f.causes == ("python", "compute")


def test_stacks_that_could_not_be_read_are_shared_out_like_the_others(make: Make) -> None:
    file = make().steps(100, {("forward", "python"): 8.0}, compute=2.0)
    for ms, stack in ((450, file.stack(*log_call(), STEP, *FIT)), (150, file.stack(STEP, *FIT)), (200, file.stack())):
        file.detail("sample", ms, phase="forward", state="python", stack=stack)
    f = next(f for f in said(file).findings if f.id == "TP707")
    assert f.cost_ms_per_step == pytest.approx(6.0, abs=0.01)


def test_samples_that_stand_for_no_time_tell_nothing(make: Make) -> None:
    file = make().steps(100, {("forward", "python"): 6.0}, compute=4.0)
    file.detail("sample", 0, phase="forward", state="python", stack=file.stack(*log_call(), STEP, *FIT), count=100)
    assert "TP707" not in [f.id for f in said(file).findings]


def test_a_few_calls_in_a_short_step_are_an_info(make: Make) -> None:
    f = next(f for f in said(logging_calls(make, *log_call(), STEP, ms=2.0, of_ms=4.0)).findings if f.id == "TP707")
    assert f.severity == "info" and f.where == "train.py:15"


@pytest.mark.parametrize(("log", "model", "fix"), [(90, 80, "every N steps"), (80, 90, "self.model = torch.compile(")])
def test_of_the_frameworks_python_the_largest_part_is_to_be_less(make: Make, log: int, model: int, fix: str) -> None:
    file = lightning(make).steps(100, {("forward", "python"): 1.7}, compute=2.3)
    called = f"{SITE}/torch/nn/modules/module.py:1780 Module._call_impl", f"{TRAIN}:9 Net.forward"
    at = file.stack(f"{SITE}/torch/nn/modules/linear.py:134 Linear.forward", *called, *FIT)
    file.detail("sample", log, phase="forward", state="python", stack=file.stack(*log_call(), STEP, *FIT), count=log)
    file.detail("sample", model, phase="forward", state="python", stack=at, count=model)
    f = next(f for f in said(file).findings if f.id == "TP309")
    assert fix in f.fix and f.fix_share == pytest.approx(90 / 170)


def test_log_calls_that_are_told_are_not_told_as_the_frameworks_python(make: Make) -> None:
    file = lightning(make).steps(100, {("forward", "python"): 9.0}, compute=1.0)
    called = f"{SITE}/torch/nn/modules/module.py:1780 Module._call_impl", f"{TRAIN}:9 Net.forward"
    at = file.stack(f"{SITE}/torch/nn/modules/linear.py:134 Linear.forward", *called, *FIT)
    file.detail("sample", 450, phase="forward", state="python", stack=file.stack(*log_call(), STEP, *FIT), count=45)
    file.detail("sample", 450, phase="forward", state="python", stack=at, count=45)
    found = {f.id: f for f in said(file).findings}
    assert found["TP707"].cost_ms_per_step == pytest.approx(4.5) == found["TP309"].cost_ms_per_step
    assert "torch.compile" in found["TP309"].fix and found["TP309"].fix_share == 1


HOOKS = f"{SITE}/lightning/pytorch/trainer/call.py:228 _call_callback_hooks"


@pytest.mark.parametrize(
    ("frames", "options"),
    [
        ((*log_call(), STEP), {"ms": 1.4, "of_ms": 4.0}),  # a few calls in a short step
        ((*log_call(), STEP), {"ms": 6.0, "of_ms": 100.0}),
        ((*log_call(), STEP), {"phase": "validation"}),
        ((*log_call(), f"{TRAIN}:60 Slow.on_train_batch_end", HOOKS), {}),  # the callback's
        ((f"{TRAIN}:70 Metric.compute", *log_call(), STEP), {}),  # the user's own code below it
        ((f"{SITE}/lightning/pytorch/core/module.py:1368 LightningModule.optimizer_step",), {}),
        ((*log_call("other/core")[:1], f"{SITE}/mine/core/module.py:5 Thing.log", STEP), {}),
    ],
)
def test_what_is_not_many_calls_of_self_log(make: Make, frames: tuple[str, ...], options: Any) -> None:
    assert "TP707" not in [f.id for f in said(logging_calls(make, *frames, **options)).findings]
