"""What is said of Lightning trainings with one known trouble, against what the trainings measured themselves."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Lightning's own
    pytest.importorskip("lightning.pytorch")
    from lightning_cases import CASES, Case
    from truth import assert_told

from trainperf.integrations.lightning import TrainPerf

pytestmark = [pytest.mark.alone, pytest.mark.filterwarnings("ignore", "error::trainperf.TrainperfWarning")]


@pytest.mark.parametrize("make", CASES, ids=[make.__name__ for make in CASES])
def test_case(make: Callable[[], Case], tmp_path: Path) -> None:
    def train(attempt: int) -> tuple[Case, Any]:
        case, callback = make(), TrainPerf(tmp_path / f"{attempt}.tpr", verbose=False)
        case.fit([callback], str(tmp_path))
        assert case.truth.batches == case.steps
        return case, callback

    assert_told(train)
