"""Rules about a framework's own parts, on runs made by hand: what they must say, and when they must be silent."""

from __future__ import annotations

from typing import Any

import pytest
from runfiles import RunFile
from trainperf.findings.model import Said
from trainperf.report import console
from verdicts import TRAIN, Make, hook, lightning, only, said


def test_a_callback_is_named_with_its_hook_and_file(make: Make) -> None:
    file = lightning(make).steps(100, {("forward", "native"): 8.0, ("other", "blocked"): 2.5, ("other", "python"): 0.5})
    file.object(1, "callback", **{"class": "Quick", "module": "app", "at": f"{TRAIN}:5", "hooks": {"on_x": hook(10)}})
    hooks = {"on_train_batch_end": hook(200), "on_after_backward": hook(20, at=f"{TRAIN}:44")}
    file.object(2, "callback", **{"class": "Slow", "module": "app", "at": f"{TRAIN}:40", "hooks": hooks})
    f = only(file)
    assert (f.id, f.cause, f.severity) == ("TP701", "blocked_io", "critical")
    assert f.who == ("Slow.on_train_batch_end",) and f.where == "train.py:41"
    assert f.cost_ms_per_step == pytest.approx(2.2, abs=0.01) and f.fix_share == pytest.approx(0.98 * 10 / 11)
    assert f.params["alike"] and f.params["hook_place"] == "train.py:41"


def test_of_two_hooks_both_are_told_and_the_fix_of_one_saves_its_own(make: Make) -> None:
    file = lightning(make).steps(100, {("forward", "native"): 8.0, ("other", "blocked"): 5.0})
    hooks = {"on_train_batch_end": hook(300), "on_after_backward": hook(200, at=f"{TRAIN}:44")}
    file.object(2, "callback", **{"class": "Slow", "module": "app", "at": f"{TRAIN}:40", "hooks": hooks})
    f = only(file)
    assert f.cost_ms_per_step == pytest.approx(5.0, abs=0.01) and f.fix_share == pytest.approx(0.98 * 0.6)
    assert f.params["time_in"] == (Said("time_in", {"also_hook": "on_after_backward", "share": pytest.approx(0.4)}),)
    assert [(h["name"], h["count"], h["each"]) for h in f.params["hooks"]][1] == ("on_after_backward", 100, 2e6)


def test_samples_say_what_a_callback_did(make: Make) -> None:
    file = lightning(make).steps(100, {("forward", "native"): 8.0, ("other", "blocked"): 2.5, ("other", "python"): 2.5})
    at = file.stack(f"{TRAIN}:49 crunch", f"{TRAIN}:42 Slow.on_after_backward")
    # The loop's own, and another class' hook of that name, in the same file.
    for elsewhere in ("training_step", "Other.on_after_backward"):
        file.detail("sample", 900, phase="other", state="blocked", stack=file.stack(f"{TRAIN}:9 {elsewhere}"), count=99)
    file.object(2, "callback", **{"class": "Other", "module": "app", "hooks": {"on_after_backward": hook(1)}})
    file.detail("sample", 200, phase="other", state="python", stack=at, count=50)
    file.object(1, "callback", **{"class": "Slow", "module": "app", "hooks": {"on_after_backward": hook(200)}})
    f = next(f for f in said(file).findings if f.id == "TP701")
    assert f.cause == "python" and f.cost_ms_per_step == pytest.approx(2.0, abs=0.01)


@pytest.mark.parametrize("mechanism", ["python", "native"])
@pytest.mark.parametrize(("function", "ids"), [("Slow.on_x", {"TP701"}), ("augment", {"TP701", "host"})])
def test_what_samples_say_of_a_callback_is_not_told_once_more(
    make: Make, mechanism: str, function: str, ids: set[str]
) -> None:
    """It takes 2.5 of 12 ms, exactly; by the samples 3.9."""
    file = lightning(make).steps(100, {("forward", "native"): 8.0, ("other", mechanism): 4.0})
    file.object(1, "callback", **{"class": "Slow", "module": "app", "hooks": {"on_x": hook(250)}})
    for at, ms in ((f"{TRAIN}:42 Slow.on_x", 195), (f"{TRAIN}:42 {function}", 195), (f"{TRAIN}:9 loop", 10)):
        file.detail("sample", ms, phase="other", state=mechanism, stack=file.stack(at), count=60)
    told = {"host" if f.id in ("TP302", "TP310") else f.id: f for f in said(file).findings}
    assert told.keys() == ids and told["TP701"].cost_ms_per_step == pytest.approx(2.5, abs=0.01)


@pytest.mark.parametrize(("callback", "cost", "share"), [(True, 4.0, 0.75), (False, 7.0, 4 / 7)])
def test_a_callback_that_sleeps_is_no_place_that_the_loop_sleeps_at(
    make: Make, callback: bool, cost: float, share: float
) -> None:
    """Measured: the loop's own two were not named at all."""
    file = lightning(make).steps(
        100, {("forward", "native"): 2.0, ("forward", "blocked"): 4.0, ("other", "blocked"): 3.0}
    )
    if callback:
        file.object(1, "callback", **{"class": "Slow", "module": "app", "hooks": {"on_x": hook(300)}})
    for phase, at, ms in (("other", "42 Slow.on_x", 400), ("forward", "8 ask", 225), ("forward", "9 poll", 75)):
        stack = file.stack(f"{TRAIN}:{at}")
        file.detail("sample", ms, phase=phase, state="blocked", code=230, stack=stack, count=ms)
    f = next(f for f in said(file).findings if f.id == "TP301")
    assert f.cost_ms_per_step == pytest.approx(cost) and f.fix_share == pytest.approx(share)
    assert f.where == ("train.py:8" if callback else "train.py:42")
    assert f.params["each"] == pytest.approx(cost * 1e6)


def test_what_samples_say_of_a_callback_that_is_not_told_is_told(make: Make) -> None:
    """Most of its time is waits for the GIL, which are no time of its own."""
    cells = {("forward", "native"): 16.0, ("other", "python"): 4.0, ("other", "gil_wait"): 10.0}
    file = lightning(make).steps(100, cells)
    file.object(1, "callback", **{"class": "Slow", "module": "app", "hooks": {"on_x": hook(250)}})
    file.detail("sample", 400, phase="other", state="python", stack=file.stack(f"{TRAIN}:42 Slow.on_x"), count=60)
    assert [f.id for f in said(file).findings if f.id in ("TP302", "TP701")] == ["TP302"]


def test_whose_collections_they_are_is_known(make: Make) -> None:
    """One callback calls gc.collect() alone, and another waits: neither is told of the other's time."""
    cells = {("forward", "native"): 8.0, ("other", "blocked"): 3.0, ("other", "gc"): 6.0}
    file = lightning(make).steps(100, cells)
    frees, waits = hook(600) | {"named_ns": 600_000_000}, hook(300) | {"named_ns": 0}
    file.object(1, "callback", **{"class": "Frees", "module": "app", "hooks": {"on_x": frees}})
    file.object(2, "callback", **{"class": "Waits", "module": "app", "hooks": {"on_x": waits}})
    f = next(f for f in said(file).findings if f.id == "TP701")
    assert f.who == ("Waits.on_x",) and f.cause == "blocked_io"
    assert f.cost_ms_per_step == pytest.approx(3.0, abs=0.01)


def test_callbacks_that_are_each_worth_a_warning_are_told_together(make: Make) -> None:
    file = lightning(make).steps(100, {("forward", "native"): 8.0, ("other", "blocked"): 4.0, ("other", "python"): 2.0})
    costs = (("Sleeps", 400, 41), ("Crunches", 180, 61), ("Quick", 10, 81))
    for i, (name, ms, line) in enumerate(costs):
        hooks = {"on_x": hook(ms, at=f"{TRAIN}:{line}")}
        file.object(1 + i, "callback", **{"class": name, "module": "app", "at": f"{TRAIN}:{line}", "hooks": hooks})
        state = "python" if name == "Crunches" else "blocked"
        file.detail("sample", ms, phase="other", state=state, stack=file.stack(f"{TRAIN}:{line} {name}.on_x"), count=40)
    (f,) = said(file).findings
    assert f.id == "TP701" and f.params["names"] == ("Sleeps", "Crunches")
    assert f.who == ("Sleeps.on_x", "Crunches.on_x") and f.cost_ms_per_step == pytest.approx(5.8, abs=0.01)
    assert f.fix_share == pytest.approx(40 / 58, abs=0.01)
    (also,) = f.params["also"]
    assert (also["part"], also["place"], also["each"], also["count"]) == ("Crunches", "train.py:61", 1.8e6, 100)


def test_what_few_of_its_calls_do_is_not_told_of_every_call(make: Make) -> None:
    file = lightning(make)
    for step in range(200):
        file.step({("forward", "native"): 5.0, ("other", "blocked"): 300.0 if step % 50 == 49 else 0.0})
    hooks = {"on_train_batch_end": {**hook(1200, 200), "max_ns": 300_000_000}}
    file.object(1, "callback", **{"class": "Slow", "module": "app", "hooks": hooks})
    f = only(file)
    assert f.id == "TP701" and f.steps_affected == 4 and f.variant == "few_calls"


def test_a_hook_of_few_calls_is_in_no_more_steps(make: Make) -> None:
    """Once an epoch, beside steps that differ by as much."""
    file = make(transformers="{}", python="3.11.7")
    for step in range(160):
        python = 55.0 if step % 23 == 0 else 30.0 if step % 5 == 0 else 0.0
        file.step({("forward", "native"): 8.0, ("other", "python"): python})
    hooks = {"on_epoch_begin": {**hook(385, 7), "max_ns": 64_000_000}, "on_step_end": hook(2, 160)}
    file.object(1, "callback", **{"class": "Sorts", "module": "app", "hooks": hooks})
    f = next(f for f in said(file).findings if f.id == "TP701")
    assert f.steps_affected == 7


def _every(
    file: RunFile, period: int, spike: dict[tuple[str, str], float], each: dict[tuple[str, str], float]
) -> RunFile:
    """200 steps: `each`, and every so many `spike` beside."""
    for step in range(200):
        file.step({**each, **(spike if step % period == period - 1 else {})})
    return file


def test_what_other_code_does_in_few_steps_is_not_a_callbacks(make: Make) -> None:
    """Its calls are alike: the longest one says so."""
    each = {("forward", "native"): 2.0, ("other", "python"): 1.0}
    file = _every(lightning(make), 20, {("forward", "python"): 60.0}, each)
    file.object(1, "callback", **{"class": "Same", "module": "app", "hooks": {"on_train_batch_end": hook(200, 200)}})
    f = next(f for f in said(file).findings if f.id == "TP701")
    assert f.steps_affected == 200 and f.params["alike"] and f.variant == "every_n"


def test_of_two_callbacks_the_one_that_seldom_takes_long_is_told_so(make: Make) -> None:
    each = {("forward", "native"): 2.0, ("other", "blocked"): 5.5}
    file = _every(lightning(make), 50, {("other", "blocked"): 300.0}, each)
    for number, name, hooks in (
        (1, "Rare", {**hook(1200, 200), "max_ns": 300_000_000}),
        (2, "Each", hook(1100, 200, at=f"{TRAIN}:61")),
    ):
        file.object(number, "callback", **{"class": name, "module": "app", "hooks": {"on_train_batch_end": hooks}})
    f = next(f for f in said(file).findings if f.id == "TP701")
    assert f.who[0] == "Rare.on_train_batch_end" and f.variant == "few_calls" and f.steps_affected == 200


def test_the_time_of_two_callbacks_is_told_once_and_whole(make: Make) -> None:
    """Where the samples of both are of one mechanism, of which there is less than they took."""
    file = lightning(make).steps(100, {("forward", "native"): 8.0, ("other", "python"): 4.0, ("other", "blocked"): 3.0})
    for i, name in enumerate("AB"):
        hooks = {"on_x": hook(300, at=f"{TRAIN}:{41 + 20 * i}")}
        file.object(1 + i, "callback", **{"class": name, "module": "app", "hooks": hooks})
        at = file.stack(f"{TRAIN}:{42 + 20 * i} {name}.on_x")
        file.detail("sample", 300, phase="other", state="python", stack=at, count=40)
    (f,) = said(file).findings
    assert f.id == "TP701" and f.cost_ms_per_step == pytest.approx(6.0, abs=0.01)


def test_a_callback_worth_a_warning_of_the_time_that_is_left_is_told(make: Make) -> None:
    cells = {("forward", "native"): 8.3, ("other", "blocked"): 1.2, ("forward", "descheduled"): 10.5}
    file = lightning(make).steps(100, cells)
    for i, (name, ms) in enumerate((("A", 59), ("B", 58))):
        hooks = {"on_x": hook(ms, at=f"{TRAIN}:{41 + 20 * i}")}
        file.object(1 + i, "callback", **{"class": name, "module": "app", "hooks": hooks})
    f = next(f for f in said(file).findings if f.id == "TP701")
    assert f.who == ("A.on_x", "B.on_x")


@pytest.mark.parametrize(("python", "waits"), [("3.10.4", 2.5), ("3.11.7", 5.0)])
def test_a_function_named_as_a_hook_is_none(make: Make, python: str, waits: float) -> None:
    """CPython tells the class of a method from 3.11 on."""
    file = lightning(make).meta(python=python)
    file.steps(100, {("forward", "native"): 8.0, ("other", "blocked"): 5.0, ("other", "python"): 5.0})
    file.object(1, "callback", **{"class": "Slow", "module": "app", "hooks": {"on_x": hook(500)}})
    main = f"{TRAIN}:90 on_x"
    file.detail("sample", 500, phase="other", state="blocked", stack=file.stack(f"{TRAIN}:41 Slow.on_x", main))
    file.detail("sample", 500, phase="other", state="python", stack=file.stack(f"{TRAIN}:9 crunch", main))
    f = next(f for f in said(file).findings if f.id == "TP701")
    assert f.claims["other", "blocked"] == pytest.approx(waits * 100e6)


@pytest.mark.parametrize("mechanism", ["python", "native", "blocked"])
def test_a_callback_of_python_is_not_sent_to_a_thread_which_would_take_the_gil(make: Make, mechanism: str) -> None:
    file = lightning(make).steps(100, {("forward", "native"): 8.0, ("other", mechanism): 2.5})
    file.object(1, "callback", **{"class": "Slow", "module": "app", "hooks": {"on_step_end": hook(200)}})
    f = next(f for f in said(file).findings if f.id == "TP701")
    assert f.params["computes"] == (mechanism == "python")


@pytest.mark.parametrize(
    ("module", "saved", "ids"),
    [
        ("lightning.pytorch.callbacks.model_checkpoint", 35.0, ["TP304"]),
        ("lightning.pytorch.callbacks.model_checkpoint", 10.0, ["TP304", "TP701"]),  # what it does is not about saves
        ("app", 35.0, ["TP304", "TP701"]),
    ],
)
def test_what_the_callback_that_saves_does_beside_is_told_with_the_saves(
    make: Make, module: str, saved: float, ids: list[str]
) -> None:
    file = lightning(make)
    for step in range(200):
        saves = step % 5 == 4
        other = 16.0 if saves else 0.0
        file.step({("other", "blocked"): other, ("checkpoint", "native"): saved if saves else 0.0}, compute=28.0)
        if saves:
            file.span("checkpoint", saved, step=step, value=32_000_000)
    file.object(
        1, "callback", **{"class": "ModelCheckpoint", "module": module, "hooks": {"on_train_batch_end": hook(640)}}
    )
    found = {f.id: f for f in said(file).findings if f.severity != "info"}
    assert sorted(found) == ids
    saving = found["TP304"]
    assert saving.cost_ns == pytest.approx(40e6 * (saved + (16.0 if ids == ["TP304"] else 0.0)), rel=0.01)
    assert (saving.params["chores"] == pytest.approx(16 / 51, abs=0.01)) == (len(ids) == 1)
    assert saving.steps_affected == 40


@pytest.mark.parametrize("file_of_hook", ["lightning/pytorch/callbacks/model_checkpoint.py", ""])
def test_a_checkpoint_callback_that_overrides_nothing_is_the_frameworks_own(make: Make, file_of_hook: str) -> None:
    file = lightning(make)
    for step in range(200):
        saves = step % 5 == 4
        file.step({("other", "blocked"): 16.0 * saves, ("checkpoint", "native"): 24.0 * saves}, compute=28.0)
        if saves:
            file.span("checkpoint", 24.0, step=step, value=32_000_000)
    at = f"/x/site-packages/{file_of_hook}:339" if file_of_hook else "/home/me/train.py:12"
    hooks = {"on_train_batch_end": {**hook(640), "at": at}}
    file.object(1, "callback", **{"class": "MyCheckpoint", "module": "app", "hooks": hooks})
    found = {f.id for f in said(file).findings if f.severity != "info"}
    assert found == ({"TP304"} if file_of_hook else {"TP304", "TP701"})


def test_what_it_hardly_does_beside_is_not_told(make: Make) -> None:
    file = lightning(make).steps(100, {("other", "python"): 0.1}, compute=28.0, checkpoint=7.0)
    module = "lightning.pytorch.callbacks.model_checkpoint"
    file.object(
        1, "callback", **{"class": "ModelCheckpoint", "module": module, "hooks": {"on_train_batch_end": hook(2)}}
    )
    found = {f.id: f for f in said(file).findings}
    assert found.keys() == {"TP304"} and found["TP304"].params["chores"] is None


@pytest.mark.parametrize(
    ("name", "module", "variant"),
    [
        ("ModelCheckpoint", "lightning.pytorch.callbacks.model_checkpoint", "frameworks"),
        ("EarlyStopping", "lightning.pytorch.callbacks.early_stopping", "frameworks"),
        ("ModelCheckpoint", "app", "every_n"),
    ],
)
def test_nobody_is_told_to_edit_a_callback_of_the_frameworks_own(
    make: Make, name: str, module: str, variant: str
) -> None:
    file = lightning(make).steps(100, {("forward", "native"): 8.0, ("other", "blocked"): 2.5})
    file.object(1, "callback", **{"class": name, "module": module, "hooks": {"on_step_end": hook(200)}})
    f = next(f for f in said(file).findings if f.id == "TP701")
    assert f.variant == variant
    assert (f.params.get("option") is not None) == (name == "ModelCheckpoint" and variant == "frameworks")


def test_its_cause_is_a_row_of_the_step_also_with_a_device(make: Make) -> None:
    file = lightning(make).meta(feeds_device="1").steps(100, {("forward", "native"): 8.0, ("other", "native"): 3.0})
    file.object(1, "callback", **{"class": "Slow", "module": "app", "hooks": {"on_after_backward": hook(300)}})
    f = next(f for f in said(file).findings if f.id == "TP701")
    assert f.causes == ("launch",)


@pytest.mark.parametrize(
    "hooks",
    [
        {"on_train_batch_end": hook(25)},
        {"on_save_checkpoint": hook(300, other=0)},
        {"on_x": {"ns": "x"}},
        {},
    ],
)
def test_a_callback_below_three_percent_or_elsewhere_is_no_trouble(make: Make, hooks: Any) -> None:
    file = lightning(make).steps(100, {("forward", "native"): 9.4, ("other", "python"): 0.6})
    file.object(1, "callback", **{"class": "Fine", "module": "app", "hooks": hooks})
    assert "callback" not in [f.slug for f in said(file).findings]


def test_rules_abstain_without_their_signals(make: Make) -> None:
    file = lightning(make, progress_bar_metrics=None).steps(100, compute=8.0)
    for probe in ("profiler", "sigterm_broadcast"):
        file.tier(f"lightning_{probe}", "off", "this Lightning has none")
    file.object(1, "lightning", name="metrics after each batch", hooks={"on_batch_end": hook(50)})
    abstained = {a.id: a.why for a in said(file).abstained}
    assert {"TP701", "TP702", "TP703", "TP704", "TP706"} <= abstained.keys()
    assert "this Lightning has none" in abstained["TP701"]


def test_plain_loops_hear_nothing_of_lightning(make: Make) -> None:
    result = said(make().steps(100, compute=8.0))
    assert not [r for r in (*result.findings, *result.abstained) if r.id.startswith("TP7")]


def test_of_two_monitors_both_are_told(make: Make) -> None:
    file = lightning(make).steps(100, {("forward", "native"): 7.0, ("other", "blocked"): 3.0})
    for i, name in enumerate(("ThroughputMonitor", "DeviceStatsMonitor")):
        module = "lightning.pytorch.callbacks"
        file.object(1 + i, "callback", **{"class": name, "module": module, "hooks": {"on_x": hook(150)}})
    f = only(file)
    assert f.id == "TP704" and f.cost_ms_per_step == pytest.approx(3.0, abs=0.01) and len(f.who) == 2
    assert f.params["names"] == ("ThroughputMonitor", "DeviceStatsMonitor") and f.params["several"]


def test_numbers_of_a_damaged_description_are_bounded(make: Make) -> None:
    file = lightning(make).steps(100, compute=9.0, blocked_io=1.0)
    for number in (1, 2):
        hooks = {"on_x": {**hook(90), "other_ns": 10**400, "own_ns": -1, "count": 0, "max_ns": "x"}}
        file.object(number, "callback", **{"class": "Odd", "module": "app", "hooks": hooks})
        file.object(9 + number, "logger", **{"class": "Odd", "hooks": hooks})
    assert said(file).verdict.text


def test_metrics_on_the_progress_bar(make: Make) -> None:
    def run(device: str = "1", **settings: Any) -> RunFile:
        file = lightning(make, **settings).meta(feeds_device=device)
        file.steps(100, {("forward", "native"): 8.0, ("other", "blocked"): 2.0})
        return file.object(1, "lightning", name="metrics after each batch", hooks={"on_batch_end": hook(180)})

    f = next(f for f in said(run()).findings if f.id == "TP703")
    assert f.params["names"] == ("loss",) and f.params["each"] == 1.8e6
    for healthy in (run(progress_bar_metrics=[]), run(device="0")):
        assert "lightning-progress-bar" not in [f.slug for f in said(healthy).findings]


@pytest.mark.parametrize("name", ["ThroughputMonitor", "DeviceStatsMonitor"])
def test_monitors_have_a_rule_of_their_own(make: Make, name: str) -> None:
    def run(module: str) -> Any:
        file = lightning(make).steps(100, {("forward", "native"): 8.0, ("other", "native"): 2.0})
        return only(file.object(1, "callback", **{"class": name, "module": module, "hooks": {"on_x": hook(190)}}))

    assert run("lightning.pytorch.callbacks.monitor").id == "TP704"
    assert run("app").id == "TP701"  # somebody's own of that name


def test_the_sigterm_broadcast(make: Make) -> None:
    file = lightning(make).steps(100, {("forward", "native"): 8.0, ("other", "blocked"): 1.0})
    file.object(1, "lightning", name="SIGTERM broadcast", hooks={"_broadcast_sigterm_tensor": hook(95)})
    f = only(file)
    assert f.id == "TP706" and f.params["count"] == 100 and f.cost_ms_per_step == pytest.approx(0.95, abs=0.01)


@pytest.mark.parametrize(("starts", "persistent", "told"), [(4, False, True), (1, False, False), (4, True, False)])
def test_workers_of_the_validation_loader(make: Make, starts: int, persistent: bool, told: bool) -> None:
    file = lightning(make).steps(100, compute=8.0, validation=2.0)
    file.loader(1, num_workers=2, persistent_workers=persistent, validation=(40, 20))
    for i in range(starts):
        file.span("loader_start", 20, step=25 * i + 24, object=1).span("first_fetch", 10, step=25 * i + 24, object=1)
    found = [f for f in said(file).findings if f.id == "TP705"]
    assert bool(found) == told
    if told:
        assert found[0].cost_ms_per_step == pytest.approx(1.2, abs=0.01) and found[0].params["workers"] == 2
    assert "worker-startup" not in [f.slug for f in said(file).findings]


def test_remedies_speak_of_the_trainer(make: Make) -> None:
    file = lightning(make).steps(100, compute=4.0, checkpoint=2.0, validation=4.0)
    fixes = {f.id: f.fix for f in said(file).findings}
    assert "ModelCheckpoint(every_n_train_steps=" in fixes["TP304"] and "val_check_interval" in fixes["TP306"]


@pytest.mark.parametrize(("setting", "told"), [(30, "val_check_interval=60"), (1.0, "val_check_interval=200")])
def test_how_often_it_validates_is_as_it_was_set(make: Make, setting: float, told: str) -> None:
    file = lightning(make, val_check_interval=setting).steps(100, compute=4.0, validation=4.0)
    fix = next(f.fix for f in said(file.span("validation", 400, step=50)).findings if f.id == "TP306")
    assert told in fix and f"now {'30' if setting == 30 else 'about every 100 steps'}" in fix, fix


def test_a_remedy_that_halves_promises_half(make: Make) -> None:
    with lightning(make).steps(100, compute=4.0, checkpoint=2.0, validation=5.0).open() as run:
        shares = {f.id: f.fix_share for f in run.findings}
        text = console.summary(run)
    assert shares["TP304"] == pytest.approx(0.99) and shares["TP306"] == 0.5
    assert "saves up to 2.5 ms/step" in text, text


def test_who_inherits_from_model_checkpoint_sets_its_options(make: Make) -> None:
    library = "/x/site-packages/lightning/pytorch/callbacks/model_checkpoint.py"
    file = lightning(make).steps(80, compute=2.0).steps(20, compute=2.0, checkpoint=20.0)
    hooks = {"on_train_batch_end": hook(90, at=f"{library}:300", other=0)}
    file.object(1, "callback", **{"class": "Named", "module": "app", "at": f"{TRAIN}:4", "hooks": hooks})
    at = file.stack(f"{library}:310 ModelCheckpoint.on_train_batch_end", f"{TRAIN}:90 <module>")
    file.detail("sample", 390, phase="checkpoint", state="blocked", stack=at)
    f = next(f for f in said(file).findings if f.id == "TP304")
    assert f.fix.startswith("ModelCheckpoint(every_n_train_steps="), f.fix
