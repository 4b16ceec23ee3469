"""What is said of Lightning trainings with one known trouble, against what the trainings measured themselves."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trainperf._native")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Lightning's own
    pytest.importorskip("lightning.pytorch")
    from lightning_cases import CASES, Case

from trainperf.integrations.lightning import TrainPerf

pytestmark = pytest.mark.filterwarnings("ignore", "error::trainperf.TrainperfWarning")

TOLERANCE = 0.03  # of the loop's time


@pytest.mark.parametrize("make", CASES, ids=[make.__name__ for make in CASES])
def test_case(make: Callable[[], Case], tmp_path: Path) -> None:
    for attempt in range(3):  # machines are shared
        case = make()
        callback: Any = TrainPerf(tmp_path / f"{attempt}.tpr", verbose=False)
        case.fit([callback], str(tmp_path))
        run = callback.run
        # Whatever the machine did: no step is lost, and no time.
        assert run.step_count == case.steps == case.truth.batches
        assert run.meta["ended"] == "normally"
        ends = run.steps.start_ns + run.steps.wall_ns
        assert (ends[:-1] == run.steps.start_ns[1:]).all()
        wrong = problems(case, run, callback.findings)
        if not wrong:
            return
    pytest.fail("; ".join(wrong))


def problems(case: Case, run: Any, findings: list[Any]) -> list[str]:
    wrong = []
    low, high = case.share
    reported = case.reported(run)
    tolerance = TOLERANCE + 0.1 * run.cause_ns("descheduled") / run.wall_ns  # which no two clocks see quite alike
    if not low - tolerance <= reported <= high + tolerance:
        wrong.append(f"{case.cause} is {reported:.3f}, not {low:.3f} to {high:.3f}")
    # A busy machine has a right to be told of.
    told = [f for f in findings if f.severity != "info" and f.slug not in ("descheduled", "cpu-oversubscription")]
    first = told[0].slug if told else ""
    if first != case.finding:
        wrong.append(f"the first finding is {first or 'none'}, not {case.finding or 'none'}")
    elif case.who and not any(case.who in who for who in told[0].who):
        wrong.append(f"who is {told[0].who}, not {case.who}")
    return wrong
