"""The examples do what their first lines promise."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest
import trainperf
import warm

needs_lightning = pytest.mark.skipif(not importlib.util.find_spec("lightning"), reason="lightning is not installed")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return warm.run(arguments)


LIVE = pytest.mark.live  # `make test` judges recorded runs of these (tests/replay)


@LIVE
@pytest.mark.parametrize("trouble", ["files", "metrics", "checkpoints"])
def test_each_trouble_gets_its_verdict(trouble: str) -> None:
    done = run(str(EXAMPLES / "demo.py"), trouble)
    assert done.returncode == 0, done.stdout + done.stderr
    # The verdict names the line; where others have the CPUs it may be about them, and the demo itself looked further.
    assert "demo.py:" in done.stderr or "trainperf  descheduled" in done.stderr, done.stderr


def test_unknown_trouble_is_refused() -> None:
    done = run(str(EXAMPLES / "demo.py"), "nonsense")
    assert done.returncode == 2
    assert "files, metrics, checkpoints" in done.stderr


@LIVE
def test_plain_example_prints_a_verdict() -> None:
    done = run(str(EXAMPLES / "plain.py"))
    assert done.returncode == 0, done.stderr
    assert "313 steps" in done.stderr


@LIVE
@needs_lightning
def test_lightning_example_prints_a_verdict(tmp_path: Path) -> None:
    done = run(str(EXAMPLES / "lightning_train.py"), str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "60 steps" in done.stderr
    shown = trainperf_show(tmp_path)
    assert "data-starved" in shown and "lightning_train.py:" in shown


@pytest.mark.alone
@needs_lightning
def test_the_founding_case_under_lightning(tmp_path: Path) -> None:
    done = run(str(EXAMPLES / "lightning_gil.py"), str(tmp_path))
    assert done.returncode == 0, done.stderr
    if "held by thread 'search-index'" in done.stderr:  # on a busy machine another verdict may come first
        assert "the first third of the run is slow because of it" in " ".join(done.stderr.split())


def trainperf_show(folder: Path) -> str:
    with trainperf.open(next((folder / "trainperf").glob("*.tpr"))) as shown:
        return " ".join(shown.summary().split())
