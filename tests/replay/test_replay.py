"""Each recorded run, judged by today's rules: right by its truth, and as it was judged before."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.replay import case as cases  # the line above makes it importable


@pytest.mark.parametrize("case", cases.load(), ids=lambda case: case.name)
def test_recorded_run(case: cases.Case) -> None:
    document = cases.replayed(case)
    assert not cases.problems(case.truth, document)
    # An intended change is looked at and accepted: python -m tests.replay --accept
    assert not cases.changes(case.answer, cases.answer(document))
