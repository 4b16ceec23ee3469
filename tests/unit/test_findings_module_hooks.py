"""TP701 of a LightningModule's own hooks, on runs made by hand: told once, and where they are called."""

from __future__ import annotations

from typing import Any

import pytest
from runfiles import RunFile
from trainperf.findings.model import Said
from verdicts import TRAIN, Make, hook, lightning, only, said


def _module(file: RunFile, hooks: dict[str, Any]) -> RunFile:
    file.object(1, "lightning_module", **{"class": "Net", "module": "app", "at": f"{TRAIN}:3", "hooks": hooks})
    return file


def test_a_hook_of_the_module_is_told_in_the_phase_that_it_is_called_in(make: Make) -> None:
    """One within the optimizer's step, and one of the loop's."""
    cells = {("forward", "native"): 5.0, ("optimizer", "native"): 4.0, ("other", "python"): 2.0}
    hooks = {"on_before_optimizer_step": hook(300), "on_train_batch_start": hook(100, at=f"{TRAIN}:60")}
    file = _module(lightning(make).steps(100, cells), hooks | {"on_train_batch_end": hook(5)})
    loop = f"{TRAIN}:9 <module>"
    for phase, state, ms, at in (
        ("forward", "native", 500, f"{TRAIN}:20 Net.training_step"),
        ("optimizer", "native", 310, f"{TRAIN}:42 Net.on_before_optimizer_step"),
        ("optimizer", "native", 90, "/x/site-packages/torch/optim/sgd.py:9 SGD.step"),
        ("other", "python", 98, f"{TRAIN}:61 Net.on_train_batch_start"),
        ("other", "python", 2, f"{TRAIN}:70 Net.on_train_batch_end"),
        ("other", "python", 100, "/x/site-packages/lightning/pytorch/loops/fit_loop.py:9 advance"),
    ):
        file.detail("sample", ms, phase=phase, state=state, stack=file.stack(at, loop), count=ms)
    f = next(f for f in said(file).findings if f.id == "TP701")
    assert f.params["kind"] == Said("kind_module") and f.params["names"] == f.who
    assert f.who == ("Net.on_before_optimizer_step", "Net.on_train_batch_start") and f.where == "train.py:41"
    assert f.cost_ms_per_step == pytest.approx(4.05, abs=0.01) and f.cause == "compute"
    assert f.claims[("optimizer", "native")] == pytest.approx(3.08e8, rel=0.02)
    assert f.claims.keys() == {("optimizer", "native"), ("other", "python")}
    assert f.fix_share == pytest.approx(0.98 * 300 / 405) and f.params["counter"] == "self.global_step"
    hook_row = f.params["hooks"][1]
    assert (hook_row["name"], hook_row["place"], hook_row["each"]) == ("on_train_batch_start", "train.py:60", 1e6)


def test_a_hook_of_the_module_that_no_sample_met_is_told_where_lightning_calls_it(make: Make) -> None:
    cells = {("forward", "native"): 5.0, ("optimizer", "native"): 4.0, ("other", "python"): 0.2}
    f = only(_module(lightning(make).steps(100, cells), {"on_after_backward": hook(100)}))
    assert f.params["kind"] == Said("kind_module") and f.params["names"] == ("Net.on_after_backward",)
    assert f.cost_ms_per_step == pytest.approx(1.0, abs=0.01) and f.claims.keys() == {("optimizer", "native")}


def test_what_a_hook_of_the_module_fetches_is_not_charged_to_what_trains(make: Make) -> None:
    """Fetches within a hook are in its time, and in the fetches that TP101 tells."""
    file = lightning(make).steps(100, {("fetch", "blocked"): 4.0, ("forward", "native"): 5.0, ("other", "native"): 0.1})
    file.loader(2, fetches=100, wait=400)
    assert [f.id for f in said(_module(file, {"on_train_batch_start": hook(400)})).findings] == ["TP101"]


def test_of_two_that_are_told_each_has_its_own_figures(make: Make) -> None:
    file = lightning(make).steps(100, {("forward", "native"): 1.0, ("other", "blocked"): 9.0})
    hooks = {"on_train_batch_end": hook(200), "on_train_batch_start": hook(190, at=f"{TRAIN}:60")}
    file.object(2, "callback", **{"class": "Slow", "module": "app", "at": f"{TRAIN}:40", "hooks": {"on_x": hook(500)}})
    f = only(_module(file, hooks))
    (also,), (start,) = f.params["also"], f.params["more_hooks"]
    assert (also["part"], also["hook"], also["call"]) == ("Net", "on_train_batch_end", 2e6)
    assert (start["name"], start["place"], start["each"]) == ("on_train_batch_start", "train.py:60", 1.9e6)


@pytest.mark.parametrize("mechanism", ["python", "native"])
@pytest.mark.parametrize("phase", ["other", "optimizer"])
@pytest.mark.parametrize(("share", "ids"), [(0.30, {"TP701"}), (0.01, {"host"})])
def test_what_samples_say_of_a_hook_of_the_module_is_told_once(
    make: Make, mechanism: str, phase: str, share: float, ids: set[str]
) -> None:
    """By the samples it takes 4 of 10 ms: exactly less, or, by one that is damaged, next to nothing."""
    file = _module(
        lightning(make).steps(100, {("forward", "native"): 6.0, (phase, mechanism): 4.0}),
        {"on_before_optimizer_step": hook(1000 * share)},
    )
    outer = ("/x/site-packages/torch/optim/sgd.py:9 SGD.step", f"{TRAIN}:9 loop")
    at = file.stack(f"{TRAIN}:42 Net.on_before_optimizer_step", *outer)
    file.detail("sample", 400, phase=phase, state=mechanism, stack=at, count=60)
    told = {"host" if f.id in ("TP302", "TP310") else f.id for f in said(file).findings}
    assert told == ids


def test_the_module_and_a_callback_are_told_together(make: Make) -> None:
    file = _module(
        lightning(make).steps(100, {("forward", "native"): 5.0, ("other", "blocked"): 4.0}),
        {"on_train_batch_end": hook(300)},
    )
    file.object(2, "callback", **{"class": "Slow", "module": "app", "at": f"{TRAIN}:40", "hooks": {"on_x": hook(100)}})
    f = only(file)
    assert f.params["kind"] == Said("kind_hook") and f.params["names"] == ("Net.on_train_batch_end", "Slow.on_x")
    assert f.cost_ms_per_step == pytest.approx(4.0, abs=0.01)


def test_self_log_in_a_hook_of_the_module_that_is_told_is_told_with_it(make: Make) -> None:
    library = "/x/site-packages/lightning/pytorch/core/module.py"
    file = lightning(make).steps(100, {("forward", "native"): 6.0, ("optimizer", "python"): 4.0})
    at = file.stack(f"{library}:520 LightningModule.log", f"{TRAIN}:42 Net.on_before_optimizer_step")
    file.detail("sample", 400, phase="optimizer", state="python", stack=at, count=400)
    assert [f.id for f in said(file).findings] == ["TP707"]
    _module(file, {"on_before_optimizer_step": hook(400)})
    assert [f.id for f in said(file).findings] == ["TP701"]


@pytest.mark.parametrize(
    ("name", "calls", "counter", "every"),
    [
        ("on_train_batch_end", 100, "batch_idx", 50),
        ("on_after_backward", 100, "self.global_step", 50),
        ("on_train_epoch_end", 5, "self.current_epoch", 5),
    ],
)
def test_how_to_do_it_less_often_in_a_hook_of_the_module(
    make: Make, name: str, calls: int, counter: str, every: int
) -> None:
    file = lightning(make).steps(100 - calls, compute=2.0)
    phase = "optimizer" if name == "on_after_backward" else "other"
    file.steps(calls, {("forward", "native"): 2.0, (phase, "blocked"): 300 / calls})
    f = only(_module(file, {name: hook(300, count=calls)}))
    assert (f.variant, f.params["hook"]) == ("module_every_n", name)
    assert (f.params["counter"], f.params["every"]) == (counter, every)


@pytest.mark.parametrize(("epochs", "left_out"), [(1, None), (2, 0.5), (3, 2 / 3), (10, 0.8)])
def test_a_hook_of_few_epochs_saves_what_its_condition_leaves_out(
    make: Make, epochs: int, left_out: float | None
) -> None:
    """`if self.current_epoch % 5 == 0` is true of the first."""
    file = lightning(make).steps(99, compute=5.0).steps(1, {("other", "blocked"): 400.0}, compute=5.0)
    hooks = {"on_train_epoch_end": hook(400, count=epochs)}
    file.object(1, "lightning_module", **{"class": "Net", "module": "app", "at": f"{TRAIN}:3", "hooks": hooks})
    f = only(file)
    assert f.id == "TP701" and f.fix_share == pytest.approx(left_out or 1.0)
    assert f.variant == ("less" if left_out is None else "module_every_n")
