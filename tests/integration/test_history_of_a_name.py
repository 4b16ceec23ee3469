"""Real runs of one name: each knows those before it, and the slower one says so."""

from __future__ import annotations

import time
from pathlib import Path

import trainperf
from children import train
from trainperf.history import Past


def test_runs_in_a_folder_know_each_other(tmp_path: Path) -> None:
    folder = f"{tmp_path}/runs/"
    for number in range(4):
        with trainperf.watch(folder, name="tiny", verbose=False) as watch:
            train(25)
        known = Past.parse(watch.run.meta["history"])
        assert len(known) == number, known
        assert all(past.steps == 24 and past.causes for past in known)
        time.sleep(0.002)  # a file's age orders them
    assert len(list((tmp_path / "runs").glob("tiny-*.tpr"))) == 4
    with trainperf.watch(folder, name="other", verbose=False) as watch:
        train(2)
    assert Past.parse(watch.run.meta["history"]) == []


def test_a_folder_that_cannot_be_looked_at_stops_nothing(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    def fails(folder: object) -> None:
        raise PermissionError("not yours")

    monkeypatch.setattr("trainperf.history.run_files", fails)
    with trainperf.watch(tmp_path, name="tiny", verbose=False) as watch:
        train(3)
    assert watch.run.step_count == 3 and "history" not in watch.run.meta
    assert any("could not be read: not yours" in note for note in watch.run.notes)


def test_without_a_name_nothing_is_looked_for(tmp_path: Path) -> None:
    with trainperf.watch(tmp_path / "a.tpr", verbose=False) as watch:
        train(3)
    assert "history" not in watch.run.meta
