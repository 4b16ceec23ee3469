"""What calls of Lightning's self.log cost, against the CPU time that the training measured itself."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import trainperf

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Lightning's own
    pytest.importorskip("lightning.pytorch")
    import lightning.pytorch as pl
    from lightning_cases import Net, loader

from trainperf.findings.engine import find

pytestmark = pytest.mark.filterwarnings("ignore", "error::trainperf.TrainperfWarning")
STEPS = 120


class Logs(Net):
    """Logs some metrics in each step, and knows what that took on the CPU."""

    def __init__(self, metrics: int, **options: Any) -> None:
        super().__init__(512)
        self.metrics, self.options, self.cpu_ns = metrics, options, 0

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = self.loss(batch)
        start = time.thread_time_ns()
        for i in range(self.metrics):
            self.log(f"metric{i}", loss.detach(), **self.options)
        self.cpu_ns += time.thread_time_ns() - start
        return loss


def watched(path: Path, model: Logs) -> Any:
    """Trains under a plain watch(); returns its run."""
    quiet: dict[str, Any] = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    torch.set_num_threads(1)
    with trainperf.watch(path, verbose=False) as watch:
        trainer = pl.Trainer(accelerator="cpu", max_epochs=1, logger=False, default_root_dir=str(path.parent), **quiet)
        trainer.fit(model, loader(None, STEPS))
    return watch.run


@pytest.mark.parametrize(
    "options",
    [pytest.param({"on_step": True, "on_epoch": True}, marks=pytest.mark.live), {"prog_bar": True}],
    ids=["epoch", "bar"],
)
def test_many_metrics_are_told_with_their_line_and_their_cost(tmp_path: Path, options: dict[str, Any]) -> None:
    model = Logs(40, **options)
    run = watched(tmp_path / "many.tpr", model)
    f = next(f for f in find(run).findings if f.id == "TP707")
    line = Logs.training_step.__code__.co_firstlineno + 4
    assert f.severity != "info" and f.where.endswith(f"test_lightning_log.py:{line}")
    assert "training_step" in f.why
    assert f.cost_ns == pytest.approx(model.cpu_ns, rel=0.3)  # some 60 samples tell its part of exact CPU time


def test_one_metric_is_no_trouble(tmp_path: Path) -> None:
    assert "TP707" not in [f.id for f in find(watched(tmp_path / "one.tpr", Logs(1))).findings]
