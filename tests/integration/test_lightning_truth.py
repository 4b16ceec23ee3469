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

pytestmark = pytest.mark.filterwarnings("ignore", "error::trainperf.TrainperfWarning")


# One for each signal; of the others `make test` judges a recorded run (tests/replay).
SIGNALS = ("healthy", "data_wait", "callback_after", "slow_logger")


def case(make: Callable[[], Case]) -> Any:
    return pytest.param(make, id=make.__name__, marks=() if make.__name__ in SIGNALS else pytest.mark.live)


@pytest.mark.parametrize("make", [case(make) for make in CASES])
def test_case(make: Callable[[], Case], tmp_path: Path) -> None:
    trained, callback = make(), TrainPerf(tmp_path / "a.tpr", verbose=False)
    trained.fit([callback], str(tmp_path))
    assert trained.truth.batches == trained.steps
    assert_told(trained, callback)
