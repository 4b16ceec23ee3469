"""Comparing runs of a real loop: one that sleeps in each step, and one that is still being written."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
import trainperf
from children import train
from trainperf.comparison import compare

pytestmark = pytest.mark.alone


class Sleepy(torch.utils.data.Dataset[torch.Tensor]):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 120

    def __getitem__(self, index: int) -> torch.Tensor:
        if index >= 120:
            raise IndexError(index)
        time.sleep(self.seconds)
        return torch.ones(1)


def run(path: Path, seconds: float) -> trainperf.Watch:
    weight = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with trainperf.watch(path, verbose=False) as watch:
        for batch in torch.utils.data.DataLoader(Sleepy(seconds), batch_size=None):
            (weight * batch).sum().backward()
            optimizer.step()
    return watch


def test_a_loop_that_waits_longer_for_its_data(tmp_path: Path) -> None:
    before, after = run(tmp_path / "a.tpr", 0.004), run(tmp_path / "b.tpr", 0.012)
    result = compare(before.run, after.run)
    assert result.kind == "slower" and result.regressed(0.5), result.verdict
    changes = {change.name: change for change in result.causes}
    assert changes["data_wait"].told and 6 < changes["data_wait"].difference < 12
    assert sum(c.after for c in result.phases) == pytest.approx(sum(c.after for c in result.causes))


def test_with_a_run_that_is_still_being_written(tmp_path: Path) -> None:
    before = run(tmp_path / "a.tpr", 0.001)
    with trainperf.watch(tmp_path / "b.tpr", verbose=False) as watch:
        train(60)
        result = compare(before.run, watch.run)
        assert "the second run was killed, or still runs" in result.notes
        assert 0 < result.after.steps < 60
