"""Checkpoints in checkpoints, and what is bracketed of libraries that the program may have."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from recorder import Recorder, Session
from trainperf.hooks.checkpoint import CheckpointHook
from trainperf.hooks.huggingface import (
    AccelerateLoaderHook,
    AcceleratorHook,
    PretrainedModelHook,
    SafetensorsHook,
    TransformersHook,
)

Install = Callable[..., Session]


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The names that the hooks look for, as a version of these libraries has them."""

    def save_file(tensors: Any, filename: Any, metadata: Any = None) -> None:
        Path(filename).write_text(json.dumps(tensors))

    class Trainer:
        def __init__(self) -> None:
            self.logged: list[Any] = []

        def evaluate(self) -> str:
            self.log({"eval_loss": 1.0})
            return "evaluated"

        def predict(self) -> None:
            raise ValueError("no labels")

        def save_model(self, folder: Path) -> None:
            PreTrainedModel().save_pretrained(folder)

        def _save_checkpoint(self, folder: Path) -> None:
            self.save_model(folder)
            torch.save({"step": 1}, folder / "optimizer.pt")

        def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
            self.logged.append((dict(logs), start_time))

    class PreTrainedModel:
        def save_pretrained(self, folder: Path) -> None:
            modules["transformers.modeling_utils"].safe_save_file({"w": 1}, folder / "model.safetensors")

    class Accelerator:
        def save_state(self, folder: Path) -> None:
            torch.save({}, folder / "state.pt")

    modules: dict[str, Any] = {
        "safetensors.torch": {"save_file": save_file},
        "transformers.trainer": {"Trainer": Trainer},
        "transformers.modeling_utils": {"PreTrainedModel": PreTrainedModel, "safe_save_file": save_file},
        "accelerate.accelerator": {"Accelerator": Accelerator},
        "accelerate.data_loader": {"send_to_device": lambda batch, device: batch},
    }
    for name, members in modules.items():
        module = types.ModuleType(name)
        vars(module).update(members)
        modules[name] = module
        monkeypatch.setitem(sys.modules, name, module)
    yield modules


HOOKS = (CheckpointHook, SafetensorsHook, PretrainedModelHook, TransformersHook, AcceleratorHook, AccelerateLoaderHook)


def test_a_save_in_a_save_is_one_checkpoint(
    libraries: dict[str, Any], hooked: Install, recorder: Recorder, tmp_path: Path
) -> None:
    hooked(*(hook() for hook in HOOKS))
    libraries["transformers.trainer"].Trainer()._save_checkpoint(tmp_path)
    assert recorder.words() == ["begin CHECKPOINT", "end CHECKPOINT"]
    written = (tmp_path / "optimizer.pt").stat().st_size + (tmp_path / "model.safetensors").stat().st_size
    assert recorder.marks[1].value == written
    recorder.marks.clear()
    torch.save({}, tmp_path / "a.pt")  # on its own: its own
    libraries["safetensors.torch"].save_file({"a": 2}, filename=tmp_path / "b")
    libraries["accelerate.accelerator"].Accelerator().save_state(tmp_path)
    assert recorder.words() == ["begin CHECKPOINT", "end CHECKPOINT"] * 3
    assert recorder.marks[3].value == len('{"a": 2}')


def test_a_save_that_fails_ends_its_bracket(
    libraries: dict[str, Any], hooked: Install, recorder: Recorder, tmp_path: Path
) -> None:
    hooked(*(hook() for hook in HOOKS))
    with pytest.raises(FileNotFoundError):
        libraries["transformers.trainer"].Trainer()._save_checkpoint(tmp_path / "missing")
    torch.save({}, tmp_path / "a.pt")
    assert recorder.words() == ["begin CHECKPOINT", "end CHECKPOINT"] * 2
    assert recorder.marks[1].value == -1


def test_evaluation_and_logging(libraries: dict[str, Any], hooked: Install, recorder: Recorder) -> None:
    hooked(TransformersHook())
    trainer = libraries["transformers.trainer"].Trainer()
    assert trainer.evaluate() == "evaluated"
    with pytest.raises(ValueError, match="no labels"):
        trainer.predict()
    assert recorder.words() == [
        *("begin_phase validation", "begin LOGGING", "end LOGGING", "end_phase validation"),
        *("begin_phase validation", "end_phase validation"),
    ]
    assert trainer.logged == [({"eval_loss": 1.0}, None)]


def test_a_move_to_the_device(libraries: dict[str, Any], hooked: Install, recorder: Recorder) -> None:
    hooked(AccelerateLoaderHook())
    move = libraries["accelerate.data_loader"].send_to_device
    assert move([1], "cpu") == [1] and move([1], torch.device("cpu")) == [1]
    assert not recorder.marks
    assert move([1], torch.device("cuda", 0)) == [1]
    assert recorder.words() == ["begin_phase transfer", "end_phase transfer"]


def test_nothing_stays(libraries: dict[str, Any], recorder: Recorder, tmp_path: Path) -> None:
    from trainperf.hooks import Hooks

    def members() -> dict[str, Any]:
        found = {name: dict(vars(module)) for name, module in libraries.items()}
        classes = [value for members in found.values() for value in members.values() if isinstance(value, type)]
        return {**found, **{kind.__name__: dict(vars(kind)) for kind in classes}}

    before = members()
    hooks = Hooks(recorder, Session(), [hook() for hook in HOOKS])
    hooks.install()
    assert members() != before
    hooks.remove()
    assert members() == before


def test_a_version_without_some_names(monkeypatch: pytest.MonkeyPatch, hooked: Install) -> None:
    module: Any = types.ModuleType("transformers.trainer")
    module.Trainer = type("Trainer", (), {"evaluate": lambda self: "evaluated"})
    monkeypatch.setitem(sys.modules, "transformers.trainer", module)
    session = hooked(TransformersHook())
    assert module.Trainer().evaluate() == "evaluated" and not session.notes
