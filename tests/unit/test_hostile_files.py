"""Run files that were made to crash their reader, or to cost it hours: one clear line, soon."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fuzz.run_files import base_files, try_one
from runfiles import RunFile
from trainperf.cli.main import main
from trainperf.runfile import schema
from trainperf.runfile.schema import too_deep

NESTED = '{"a":' * 100_000 + "1" + "}" * 100_000


def refused(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The line that every command answers with."""
    lines = set()
    for words in (["report", str(path), "-f"], ["export", str(path), "-f", "-o", f"{path}.trace.json"]):
        assert main(words) == 1, words
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and len(error) < 1000, error
        lines.add(error.partition(": ")[2])
    (line,) = lines
    return line


@pytest.mark.parametrize(
    "key", ["lightning", "transformers", "argv", "cells", "history", "forward_lines", "thread_cpu"]
)
def test_deep_json_is_refused_and_the_limit_named(tmp_path: Path, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    for text in (NESTED, "[" * 40 + "]" * 40):
        path = RunFile(tmp_path / "a.tpr", **{key: text}).steps(40, compute=5).build()  # type: ignore[arg-type]
        assert "meta.value holds JSON of more than 32 levels, which are the most" in refused(path, capsys)
        path.unlink()


def test_depth() -> None:
    assert too_deep(NESTED) and not too_deep(json.dumps([[1], {"a": "[" * 99 + '"{'}] * 99)) and not too_deep("")


def test_a_huge_name_is_refused_and_the_limit_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = RunFile(tmp_path / "a.tpr").steps(40, compute=5)
    file.detail("gil_wait", 40, thread=file.thread("x" * 5_000_000)).keep(20, "worst", ("forward", "native", 5.0))
    told = refused(file.build(), capsys)
    assert "thread.name holds a text of 5,000,000 characters, and 65,536 are the most" in told


def test_a_huge_file_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = RunFile(tmp_path / "a.tpr").steps(40, compute=5).build()
    with path.open("r+b") as file:
        file.truncate(300 << 20)
    assert "has 300 MB, and a run file has at most 256 MB" in refused(path, capsys)
    assert path.stat().st_size > schema.MOST_BYTES


def test_what_nobody_foresaw_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(*_: object) -> None:
        raise RecursionError("maximum\nrecursion")

    monkeypatch.setattr("trainperf.ranks.open_job", fails)
    assert main(["show", "x.tpr"]) == 1
    expected = "unexpected RecursionError: maximum recursion (trainperf -vv show shows where: please report it)"
    assert capsys.readouterr().err == f"trainperf show: {expected}\n"
    with pytest.raises(RecursionError):
        main(["-vv", "show", "x.tpr"])


def test_no_view_of_a_damaged_file_fails(tmp_path: Path) -> None:
    """A slice of `make fuzz`: the seeds from 0 on, as many as two seconds are enough for."""
    bases, until = base_files(tmp_path, limit=3), time.monotonic() + 2
    for seed in range(1000):
        assert not (wrong := try_one(seed, bases, tmp_path)), wrong
        if time.monotonic() > until:
            break
