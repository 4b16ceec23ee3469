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

pytestmark = pytest.mark.filterwarnings("ignore", "error::trainperf.TrainperfWarning")


# One for each signal; of the others `make test` judges a recorded run (tests/replay).
SIGNALS = ("trainer_data_wait", "trainer_evaluation", "trainer_save", "accelerate_data_wait")


def case(make: Callable[[], Case]) -> Any:
    return pytest.param(make, id=make.__name__, marks=() if make.__name__ in SIGNALS else pytest.mark.live)


@pytest.mark.parametrize("make", [case(make) for make in CASES])
def test_case(make: Callable[[], Case], tmp_path: Path) -> None:
    trained = make()
    assert_told(trained, trained.train(tmp_path / "a.tpr"))


if __name__ == "__main__":  # the table: case, truth, ours
    import tempfile

    for make in CASES:
        case = make()
        watch = case.train(Path(tempfile.mkdtemp()) / "a.tpr")
        low, high = case.share
        print(f"{case.title:60} {case.cause:12} {low:6.1%}..{high:6.1%} {case.reported(watch.run):6.1%}"
              f"  {watch.run.step_count}/{case.steps} {case.problems(watch.run, watch.findings)}")  # fmt: skip
