"""What the program's own set-up of logging raises does not reach its training."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trainperf
from recorder import Recorder
from trainperf.errors import TrainperfWarning
from trainperf.hooks.between import Between
from trainperf.log import log
from trainperf.watching.closed_steps import ClosedStep
from trainperf.watching.lifetime import Lifetime


@pytest.fixture
def strict() -> Iterator[None]:
    """A filter that raises."""

    def refuse(record: logging.LogRecord) -> bool:
        raise ValueError("no such record")

    logger = logging.getLogger("trainperf")
    logger.addFilter(refuse)
    yield
    logger.removeFilter(refuse)


def test_it_is_told_on_stderr_instead(strict: None, capsys: pytest.CaptureFixture[str]) -> None:
    log.warning("%s is off", "a hook")
    log.error("100% gone")
    assert capsys.readouterr().err.splitlines() == [
        "trainperf: a hook is off (the log failed: ValueError: no such record)",
        "trainperf: 100% gone (the log failed: ValueError: no such record)",
    ]


@pytest.mark.parametrize("fails", [None, ValueError("closed file"), AttributeError("a Tee whose file is gone")])
def test_without_a_stderr_it_is_silent(
    strict: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fails: Exception | None
) -> None:
    class Fails:
        def write(self, text: str) -> None:
            assert fails is not None
            raise fails

    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", Fails() if fails else None)
        log.error("gone")
    assert capsys.readouterr() == ("", "")


def test_an_argument_that_has_no_text(strict: None) -> None:
    class Fails:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    log.error("%s is gone", Fails())


def test_a_callback_that_fails(strict: None, recorder: Recorder) -> None:
    def on_flag(step: ClosedStep) -> None:
        raise KeyError("gone")

    session = recorder.Session("")
    session.flagged = [(7, 100_000_000, 1, (60_000_000, 0, 40_000_000))]
    with pytest.warns(TrainperfWarning, match="on_flag raised KeyError"):
        Between(recorder, session, on_flag).at_fetch()
    assert len(session.notes) == 1


def test_a_bracket_that_is_none_and_a_watch_that_ends(strict: None, capsys: pytest.CaptureFixture[str]) -> None:
    with trainperf.watch(None) as run, run.phase("typo"):
        pass
    assert "'typo') is not a phase" in capsys.readouterr().err


def test_the_place_of_a_line_is_its_callers(caplog: pytest.LogCaptureFixture) -> None:
    log.warning("here")
    assert [r.filename for r in caplog.records] == ["test_log.py"]


def test_a_verdict_that_fails_leaves_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fails(watch: object) -> None:
        raise ImportError("no such symbol")

    monkeypatch.setattr(Lifetime, "_print_verdict", fails)
    path = tmp_path / "a.tpr"
    with trainperf.watch(path):
        pass
    said = "the verdict could not be shown: ImportError: no such symbol; the run is kept"
    assert capsys.readouterr().err.splitlines() == [f"trainperf: {said}: trainperf show {path}"]


def test_ctrl_c_while_the_verdict_is_made_says_where_the_run_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def interrupted(watch: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Lifetime, "_print_verdict", interrupted)
    path = tmp_path / "a.tpr"
    with pytest.raises(KeyboardInterrupt), trainperf.watch(path):
        pass
    said = f"the verdict could not be shown: interrupted; the run is kept: trainperf show {path}"
    assert capsys.readouterr().err.splitlines() == [f"trainperf: {said}"]
    with trainperf.open(path) as run:
        assert run.ended == "normally"
