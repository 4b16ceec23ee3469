"""What the tests of loops share: a tiny task, and a watch around a loop that checks that no time is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import trainperf
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

N = 12  # batches an epoch

Loop = Callable[[trainperf.Watch], None]


class Task:
    """A tiny regression: data, model, optimizer."""

    def __init__(self, optimizer: type[torch.optim.Optimizer] = torch.optim.SGD, **options: Any) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
        self.optimizer = optimizer(self.model.parameters(), **{"lr": 0.01, **options})

    def loader(self, batches: int = N, **options: Any) -> DataLoader[Any]:
        rows = TensorDataset(torch.randn(batches * 4, 8), torch.randn(batches * 4, 1))
        return DataLoader(rows, batch_size=4, **options)

    def loss(self, batch: Any, model: nn.Module | None = None) -> torch.Tensor:
        x, y = batch
        return ((model or self.model)(x) - y).square().mean()

    def train(self, batch: Any) -> None:
        self.optimizer.zero_grad()
        self.loss(batch).backward()
        self.optimizer.step()


def batch() -> list[torch.Tensor]:
    return [torch.randn(4, 8), torch.randn(4, 1)]


def watch(loop: Loop, tmp_path: Path, **options: Any) -> Any:
    with trainperf.watch(tmp_path / "a.tpr", verbose=False, **options) as watched:
        loop(watched)
    run = watched.run
    check_wall_to_wall(run)
    return run


def check_wall_to_wall(run: Any) -> None:
    steps = run.steps
    assert (steps.count == 1).all()
    ends = steps.start_ns + steps.wall_ns
    assert (ends[:-1] == steps.start_ns[1:]).all(), "time between two steps was lost"
    assert (steps.causes_ns.sum(axis=1) == steps.wall_ns).all()
    assert (steps.phases_ns.sum(axis=1) == steps.wall_ns).all()
    assert run.dropped.get("events", 0) == 0


def phase_share(run: Any, phase: str) -> float:
    return float(run.phase_ns(phase) / run.wall_ns)


def validate(task: Task, loader: DataLoader[Any], ms: float = 1.0) -> None:
    task.model.eval()
    with torch.no_grad():
        for b in loader:
            task.loss(b)
            time.sleep(ms / 1e3)
    task.model.train()
