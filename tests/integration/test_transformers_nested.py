"""Trainings that other callbacks run, within the Trainer's or before it, and the loader that a Trainer makes itself."""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs
    pytest.importorskip("transformers")
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from huggingface_cases import BATCH, Rows
    from huggingface_trainings import N, trainer

from trainperf.integrations import transformers_fit
from trainperf.integrations.transformers import TrainPerfCallback
from transformers import Trainer, TrainerCallback

pytestmark = [
    pytest.mark.filterwarnings("ignore", "error::trainperf.TrainperfWarning"),
    pytest.mark.usefixtures("one_thread"),
]


def test_figures_go_on_after_a_training_within_another_ones_callback(tmp_path: Path) -> None:
    class Nests(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 3:
                inner = TrainPerfCallback(verbose=False, log_metrics=False)
                trainer(tmp_path, [inner]).train()

    steps = 48  # the first close after 32
    slow = Rows(None, steps * BATCH, lambda: time.sleep(0.03))
    callback = TrainPerfCallback(tmp_path / "a.tpr", verbose=False)
    outer = trainer(tmp_path, [callback, Nests()], slow, logging_steps=1)
    outer.train()
    later = [entry for entry in outer.state.log_history if "loss" in entry and entry["step"] > 10]
    assert any("trainperf/step_ms" in entry for entry in later)
    assert callback.run.step_count == steps  # the inner one's are a part of the step that it was called in


@pytest.mark.parametrize("event", ["on_train_begin", "on_evaluate"])
def test_what_a_callback_trains_before_the_loop_is_no_step(tmp_path: Path, event: str) -> None:
    def train(*_: Any, **__: Any) -> None:
        net = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(net.parameters(), 0.01)
        for x in DataLoader(torch.randn(40, 4), batch_size=2):
            optimizer.zero_grad()
            net(x).pow(2).mean().backward()
            optimizer.step()

    callback = TrainPerfCallback(tmp_path / "a.tpr", verbose=False)
    trains = type("Trains", (TrainerCallback,), {event: train})()
    trainer(tmp_path, [callback, trains], eval_on_start=True, eval_strategy="steps", eval_steps=N // 2).train()
    assert callback.run.step_count == N and callback.run.incomplete == 0


def test_whose_the_loader_is_is_kept(tmp_path: Path) -> None:
    class Own(Trainer):  # type: ignore[misc]
        def get_train_dataloader(self) -> Any:
            return DataLoader(self.train_dataset, batch_size=BATCH)

    class Asks(Trainer):  # type: ignore[misc]
        def get_train_dataloader(self) -> Any:
            return super().get_train_dataloader()

    for kind, told in ((Own, f"{Own.__qualname__}.get_train_dataloader"), (Asks, ""), (Trainer, "")):
        assert transformers_fit._own_loader(kind) == told


def test_a_training_within_another_ones_callback_is_part_of_that(tmp_path: Path) -> None:
    class Nested(TrainerCallback):  # type: ignore[misc]
        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            trainer(tmp_path, [TrainPerfCallback(tmp_path / "never.tpr", verbose=False)]).train()

    callback = TrainPerfCallback(tmp_path / "a.tpr", verbose=False)
    outer = trainer(tmp_path, [Nested()])
    outer.add_callback(callback)
    outer.train()
    assert callback.run.step_count == 2 * N and not (tmp_path / "never.tpr").exists()
