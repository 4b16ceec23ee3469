"""Each of tests/programs, run under trainperf: its verdict is held against the truth that the program measured itself.

`python -m tests.programs.table` prints the table of truth and report; `-s` prints its rows here.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("trainperf._native")

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.programs import judge  # the line above makes it importable

pytestmark = pytest.mark.alone

# Loops in which another profiler alarms, or where trouble and health look alike: here without the trouble.
TWINS = (
    "blocked_background_loader",
    "compile_warmup",
    "cpu_oversubscription",
    "data_next_inside",
    "data_two_steps",
    "gil_spin",
    "logging_slow",
    "uneven",
    "validation_often",
    "worker_startup",
)


def judged(name: str, tmp_path: Path, arguments: Sequence[str] = ()) -> judge.Outcome:
    """Runs a program; once more when the first verdict is off: a second or two on a machine that others use may be."""
    for attempt in ("first", "second"):
        folder = tmp_path / attempt
        folder.mkdir()
        outcome = judge.run(name, folder, list(arguments))
        print(judge.table([judge.row(outcome)]))
        if outcome.skipped or not judge.problems(outcome):
            break
    return outcome


@pytest.mark.parametrize("name", judge.programs())
def test_program(name: str, tmp_path: Path) -> None:
    outcome = judged(name, tmp_path)
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    assert not judge.problems(outcome), outcome.printed


@pytest.mark.parametrize("name", TWINS)
def test_healthy_twin(name: str, tmp_path: Path) -> None:
    outcome = judged(name, tmp_path, ["--size", "0", "--steps", "300"])
    assert outcome.truth["finding"] is None
    assert not judge.problems(outcome), outcome.printed
