"""What is said of trainings with the Trainer and Accelerate, against what the trainings timed themselves."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trainperf._native")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from huggingface_cases import CASES, Case

pytestmark = pytest.mark.filterwarnings("ignore", "error::trainperf.TrainperfWarning")

TOLERANCE = 0.03  # of the loop's time


@pytest.mark.parametrize("make", CASES, ids=[make.__name__ for make in CASES])
def test_case(make: Callable[[], Case], tmp_path: Path) -> None:
    for attempt in range(3):  # machines are shared
        case = make()
        folder = tmp_path / str(attempt)
        folder.mkdir()
        watch = case.train(folder / "a.tpr")
        run = watch.run
        # Whatever the machine did: no step is lost, and no time.
        assert run.step_count == case.steps and run.incomplete == 0
        assert run.meta["ended"] == "normally"
        ends = run.steps.start_ns + run.steps.wall_ns
        assert (ends[:-1] == run.steps.start_ns[1:]).all()
        wrong = problems(case, run, watch.findings)
        if not wrong:
            return
    pytest.fail("; ".join(wrong))


def problems(case: Case, run: Any, findings: list[Any]) -> list[str]:
    wrong = []
    low, high = case.share
    reported = case.reported(run)
    if not low - TOLERANCE <= reported <= high + TOLERANCE:
        wrong.append(f"{case.cause} is {reported:.3f}, not {low:.3f} to {high:.3f}")
    # A busy machine has a right to be told of.
    told = [f for f in findings if f.severity != "info" and f.slug not in ("descheduled", "cpu-oversubscription")]
    first = told[0].slug if told else ""
    if first != case.finding:
        wrong.append(f"the first finding is {first or 'none'}, not {case.finding or 'none'}")
    elif case.who and not any(case.who in who for who in told[0].who):
        wrong.append(f"who is {told[0].who}, not {case.who}")
    elif told and case.fix not in told[0].fix:
        wrong.append(f"the fix is {told[0].fix!r}, without {case.fix!r}")
    return wrong


if __name__ == "__main__":  # the table: case, truth, ours
    import tempfile

    for make in CASES:
        case = make()
        watch = case.train(Path(tempfile.mkdtemp()) / "a.tpr")
        low, high = case.share
        print(f"{case.title:60} {case.cause:12} {low:6.1%}..{high:6.1%} {case.reported(watch.run):6.1%}"
              f"  {watch.run.step_count}/{case.steps} {problems(case, watch.run, watch.findings)}")  # fmt: skip
