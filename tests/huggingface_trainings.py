"""Short trainings by Hugging Face's Trainer, quiet and small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from huggingface_cases import BATCH, Net, Rows, arguments
from transformers import Trainer, TrainerCallback

N = 20  # steps, unless a test says otherwise


def trainer(folder: Path, callbacks: list[Any], dataset: Any = None, **options: Any) -> Trainer:
    return Trainer(
        model=Net(16),
        args=arguments(folder, **options),
        train_dataset=Rows(None, N * BATCH) if dataset is None else dataset,
        eval_dataset=Rows(None, 8),
        callbacks=callbacks,
    )


class Boom(TrainerCallback):  # type: ignore[misc]
    def __init__(self, error: type[BaseException], at: int = 5) -> None:
        self.error, self.at = error, at

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.at:
            raise self.error("boom")
