"""Short trainings by Lightning under TrainPerf, quiet and small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning_cases import Net, loader
from trainperf.integrations.lightning import TrainPerf
from unpatched import OURS

N = 12  # steps, unless a test says otherwise


def fit(
    tmp_path: Path, model: Any = None, train: Any = None, val: Any = None, *, prof: Any = None, **options: Any
) -> Any:
    """Trains under TrainPerf; returns it."""
    prof = prof or TrainPerf(verbose=False)
    trainer(tmp_path, prof, **options).fit(model or Net(8), loader(None, N) if train is None else train, val)
    return prof


def trainer(tmp_path: Path, prof: Any, **options: Any) -> Any:
    callbacks = [prof, *options.pop("callbacks", [])]
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    defaults = {"accelerator": "cpu", "default_root_dir": str(tmp_path), "max_epochs": 1, "logger": False} | quiet
    made = pl.Trainer(**(defaults | {"num_sanity_val_steps": 0, "callbacks": callbacks} | options))
    before = made.profiler
    made.untouched = lambda: check_untouched(made, before)
    return made


def check_untouched(made: Any, profiler: Any) -> None:
    assert made.profiler is profiler
    assert "save_checkpoint" not in vars(made)
    assert "run" not in vars(made.fit_loop.epoch_loop.val_loop)
    assert "on_batch_end" not in vars(made._logger_connector)
    for logger in made.loggers:
        assert not type(logger).log_metrics.__code__.co_filename.startswith(OURS)


def wall_to_wall(run: Any, steps: int) -> Any:
    assert run.step_count == steps
    ends = run.steps.start_ns + run.steps.wall_ns
    assert (ends[:-1] == run.steps.start_ns[1:]).all()
    return run


class Batches(pl.Callback):
    count = 0

    def on_train_batch_end(self, *_: Any) -> None:
        self.count += 1
