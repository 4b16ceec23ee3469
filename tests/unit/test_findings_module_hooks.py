"""TP701 of a LightningModule's own hooks, on runs made by hand: told once, and where they are called."""

from __future__ import annotations

from typing import Any

import pytest
from runfiles import RunFile
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
    assert f.title.startswith("the module's hooks Net.on_before_optimizer_step and Net.on_train_batch_start hold up")
    assert f.who == ("Net.on_before_optimizer_step", "Net.on_train_batch_start") and f.where == "train.py:41"
    assert f.cost_ms_per_step == pytest.approx(4.05, abs=0.01) and f.cause == "compute"
    assert f.claims[("optimizer", "native")] == pytest.approx(3.08e8, rel=0.02)
    assert f.claims.keys() == {("optimizer", "native"), ("other", "python")}
    assert f.fix_share == pytest.approx(0.98 * 300 / 405) and "if self.global_step % 50 == 0: ..." in f.fix
    assert "on_train_batch_start (train.py:60): 100 calls, 1.0 ms each, the longest 1.0 ms" in f.evidence


def test_a_hook_of_the_module_that_no_sample_met_is_told_where_lightning_calls_it(make: Make) -> None:
    cells = {("forward", "native"): 5.0, ("optimizer", "native"): 4.0, ("other", "python"): 0.2}
    f = only(_module(lightning(make).steps(100, cells), {"on_after_backward": hook(100)}))
    assert f.title == "the module's hook Net.on_after_backward holds up the loop"
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
    assert "so does Net.on_train_batch_end, 20%" in f.why
    assert "on_train_batch_start (train.py:60): 100 calls, 1.9 ms each, the longest 1.9 ms" in f.evidence


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
    assert f.title == "the hooks Net.on_train_batch_end and Slow.on_x hold up the loop"
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
    ("name", "calls", "fix"),
    [
        ("on_train_batch_end", 100, "if batch_idx % 50 == 0: ...\n# if every step needs it"),
        ("on_after_backward", 100, "if self.global_step % 50 == 0: ...\n# if every step needs it"),
        ("on_train_epoch_end", 5, "if self.current_epoch % 5 == 0: ..."),
    ],
)
def test_how_to_do_it_less_often_in_a_hook_of_the_module(make: Make, name: str, calls: int, fix: str) -> None:
    file = lightning(make).steps(100 - calls, compute=2.0)
    phase = "optimizer" if name == "on_after_backward" else "other"
    file.steps(calls, {("forward", "native"): 2.0, (phase, "blocked"): 300 / calls})
    f = only(_module(file, {name: hook(300, count=calls)}))
    assert f.fix.startswith("# compute metrics and plots every ") and fix in f.fix and name in f.why


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
    assert ("every 5 epochs" in f.fix) == (left_out is not None) == ("do less" not in f.fix)
