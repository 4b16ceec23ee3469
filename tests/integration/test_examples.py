"""The small examples run, and their verdict is about the trouble that they say they have."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import warm

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# Example, what it needs, what its stderr tells.
TOLD = [
    ("plain_loop", "torch", ["TP101", "150 steps"]),
    ("transformers_train", "transformers", ["TP101", "40 steps"]),
    ("accelerate_train", "accelerate", ["TP304", "80 steps"]),
]


# Of all but the first, `make test` judges recorded runs (tests/replay).
@pytest.mark.parametrize(
    ("name", "needs", "told"),
    [pytest.param(*row, id=row[0], marks=() if row is TOLD[0] else pytest.mark.live) for row in TOLD],
)
def test_example(name: str, needs: str, told: list[str]) -> None:
    if importlib.util.find_spec(needs) is None:
        pytest.skip(f"{needs} is not installed")
    done = warm.run([str(EXAMPLES / f"{name}.py")])
    assert done.returncode == 0, done.stderr
    if name == "plain_loop":  # on_flag, live
        lines = [line for line in done.stdout.splitlines() if line.startswith("step ")]
        assert len(lines) >= 6 and all("for data" in line for line in lines)
    assert all(text in done.stderr for text in told), done.stderr
