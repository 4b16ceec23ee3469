"""The examples do what their first lines promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("trainperf._native")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], check=False, capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize("trouble", ["files", "metrics", "checkpoints"])
def test_each_trouble_gets_its_verdict(trouble: str) -> None:
    done = run(str(EXAMPLES / "demo.py"), trouble)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "demo.py:" in done.stderr  # the verdict names the line


def test_unknown_trouble_is_refused() -> None:
    done = run(str(EXAMPLES / "demo.py"), "nonsense")
    assert done.returncode == 2
    assert "files, metrics, checkpoints" in done.stderr


def test_plain_example_prints_a_verdict() -> None:
    done = run(str(EXAMPLES / "plain.py"))
    assert done.returncode == 0, done.stderr
    assert "313 steps" in done.stderr
