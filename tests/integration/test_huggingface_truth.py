"""What is said of trainings with the Trainer and Accelerate, against what the trainings timed themselves."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from huggingface_cases import CASES, Case
    from truth import assert_told

pytestmark = [pytest.mark.alone, pytest.mark.filterwarnings("ignore", "error::trainperf.TrainperfWarning")]


@pytest.mark.parametrize("make", CASES, ids=[make.__name__ for make in CASES])
def test_case(make: Callable[[], Case], tmp_path: Path) -> None:
    def train(attempt: int) -> tuple[Case, Any]:
        case, folder = make(), tmp_path / str(attempt)
        folder.mkdir()
        return case, case.train(folder / "a.tpr")

    assert_told(train)


if __name__ == "__main__":  # the table: case, truth, ours
    import tempfile

    for make in CASES:
        case = make()
        watch = case.train(Path(tempfile.mkdtemp()) / "a.tpr")
        low, high = case.share
        print(f"{case.title:60} {case.cause:12} {low:6.1%}..{high:6.1%} {case.reported(watch.run):6.1%}"
              f"  {watch.run.step_count}/{case.steps} {case.problems(watch.run, watch.findings)}")  # fmt: skip
