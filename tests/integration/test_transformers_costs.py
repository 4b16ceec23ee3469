"""What the callbacks of a Trainer cost: each its own, and in the loop what is not told elsewhere."""

from __future__ import annotations

import contextlib
import io
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs
    pytest.importorskip("transformers")
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from huggingface_cases import BATCH, Rows
    from huggingface_trainings import Boom, N, trainer

import trainperf
from trainperf.integrations.transformers import TrainPerfCallback
from transformers import TrainerCallback

pytestmark = [
    pytest.mark.filterwarnings("ignore", "error::trainperf.TrainperfWarning"),
    pytest.mark.usefixtures("one_thread"),
]


class Waits(TrainerCallback):  # type: ignore[misc]
    """Sleeps, and knows for how long, in what is told by itself: before the first step, logging, saving, evaluating."""

    def __init__(self) -> None:
        self.trainer: Any = None
        self.step_s = 0.0

    @staticmethod
    def sleep(seconds: float) -> float:
        start = time.perf_counter()
        time.sleep(seconds)
        return time.perf_counter() - start

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        self.sleep(0.6)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 0:
            self.sleep(0.3)

    def on_log(self, *args: Any, **kwargs: Any) -> None:
        self.sleep(0.005)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % 5 == 0:
            torch.save({}, SlowFile())
        self.step_s += self.sleep(0.006)

    def on_epoch_end(self, *args: Any, **kwargs: Any) -> None:
        self.trainer.evaluate(Rows(None, 8, lambda: time.sleep(0.05)))


class SlowFile(io.BytesIO):
    def write(self, data: Any) -> int:
        time.sleep(0.01)
        return super().write(data)


def test_what_a_callback_logs_saves_and_evaluates_is_not_its_own_in_the_loop(tmp_path: Path) -> None:
    waits = Waits()
    callback = TrainPerfCallback(tmp_path / "a.tpr", verbose=False)
    training = trainer(tmp_path, [callback, waits], logging_steps=1, num_train_epochs=2)
    waits.trainer = training
    training.train()
    run = callback.run
    hooks = next(d["hooks"] for kind, d in run.objects.values() if kind == "callback" and d["class"] == "Waits")
    assert "on_train_begin" not in hooks
    assert hooks["on_log"]["own_ns"] >= 2 * N * 5e6 and hooks["on_log"]["other_ns"] < 2 * N * 1e6
    assert hooks["on_epoch_begin"]["count"] == 1 and hooks["on_epoch_begin"]["other_ns"] < 10e6
    assert hooks["on_epoch_end"]["own_ns"] >= 2 * 50e6 and hooks["on_epoch_end"]["other_ns"] < 20e6
    assert hooks["on_step_end"]["own_ns"] / 1e9 >= waits.step_s + 2 * N / 5 * 0.01
    assert hooks["on_step_end"]["other_ns"] / 1e9 == pytest.approx(waits.step_s, abs=0.03)
    told = next(f for f in run.judged.findings if f.id == "TP701")
    assert told.cost_ns / 1e9 == pytest.approx(waits.step_s, abs=0.05)


class Validates(TrainerCallback):  # type: ignore[misc]
    """By itself, as people do who want a metric of their own, and logs it; then it does something else."""

    def __init__(self) -> None:
        self.seconds = self.else_s = 0.0
        self.trainer: Any = None

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if state.global_step % 4:
            return
        start = time.perf_counter()
        model.eval()
        with torch.no_grad():
            rows = Rows(None, 4)
            for row in map(rows.__getitem__, range(4)):
                time.sleep(0.005)
                model(row["x"][None], row["labels"][None])
        self.trainer.log({"own_metric": 1.0})
        model.train()
        self.seconds += (end := time.perf_counter()) - start
        time.sleep(0.02)
        self.else_s += time.perf_counter() - end


def test_a_callback_that_validates_by_itself_is_told_as_validation(tmp_path: Path) -> None:
    validates, callback = Validates(), TrainPerfCallback(tmp_path / "a.tpr", verbose=False)
    validates.trainer = trainer(tmp_path, [callback, validates], Rows(None, 60 * BATCH), logging_steps=1000)
    validates.trainer.train()
    run = callback.run
    hooks = next(d["hooks"] for kind, d in run.objects.values() if kind == "callback" and d["class"] == "Validates")
    # What other callbacks do as it logs is theirs.
    assert hooks["on_step_end"]["own_ns"] / 1e9 == pytest.approx(validates.seconds + validates.else_s, rel=0.05)
    assert hooks["on_step_end"]["other_ns"] / 1e9 == pytest.approx(validates.else_s, rel=0.15)
    told = {f.id: f for f in run.judged.findings}
    assert told["TP701"].cost_ns / 1e9 == pytest.approx(validates.else_s, rel=0.15)
    assert told["TP306"].cost_ns / 1e9 == pytest.approx(validates.seconds, rel=0.15)
    # Before it there may be the line that takes most of it, where the samples suffice to say so.
    assert "# in Validates.on_step_end: validate half as often" in told["TP306"].fix


@pytest.mark.parametrize("breaks", [pytest.param(False, marks=pytest.mark.live), True])
def test_a_training_within_a_timed_callback(tmp_path: Path, breaks: bool) -> None:
    """With an evaluation before it begins, and after an inner one that raises: the outer one's costs go on."""

    class Nests(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 3:
                inner = [TrainPerfCallback(verbose=False), *([Boom(RuntimeError, 2)] if breaks else [])]
                training = trainer(tmp_path, inner, eval_on_start=True, disable_tqdm=False)
                with pytest.raises(RuntimeError) if breaks else contextlib.nullcontext():
                    training.train()
            torch.save({}, SlowFile())

    callback = TrainPerfCallback(tmp_path / "a.tpr", verbose=False)
    trainer(tmp_path, [callback, Nests()]).train()
    described = (d for kind, d in callback.run.objects.values() if d.get("class", "").endswith("Nests"))
    costs = next(described)["hooks"]["on_step_end"]
    assert costs["count"] == N and costs["own_ns"] >= N * 10e6
    nested_ns = costs["max_ns"]  # the call with the inner training, which is the callback's own
    assert costs["other_ns"] <= nested_ns + 0.2 * (costs["own_ns"] - nested_ns)


def test_a_callback_that_comes_while_it_trains_is_timed(tmp_path: Path) -> None:
    class Late(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            time.sleep(0.004)

    class Adds(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 5:  # as many as before
                training.remove_callback(Boom)
                training.add_callback(late)

    callback, late = TrainPerfCallback(tmp_path / "a.tpr", verbose=False), Late()
    steps = 4 * N
    training = trainer(tmp_path, [callback, Adds(), Boom(RuntimeError, -1)], Rows(None, steps * BATCH))
    training.train()
    found = next(d["hooks"] for kind, d in callback.run.objects.values() if d.get("class", "").endswith("Late"))
    # Looked for ten times a second, which is 25 of its steps.
    assert steps - 5 - 26 <= found["on_step_end"]["count"] <= steps - 4
    assert found["on_step_end"]["other_ns"] >= found["on_step_end"]["count"] * 4e6
    assert "on_step_end" not in vars(late)


@pytest.mark.live
def test_two_trainings_under_one_watch_sum_what_a_callback_costs(tmp_path: Path) -> None:
    waits = Waits()
    with trainperf.watch(tmp_path / "a.tpr", verbose=False) as watch:
        for _ in range(2):
            training = trainer(tmp_path, [TrainPerfCallback(), waits])
            waits.trainer = training
            training.train()
    hooks = next(d["hooks"] for kind, d in watch.run.objects.values() if kind == "callback" and d["class"] == "Waits")
    assert hooks["on_step_end"]["count"] == 2 * N
