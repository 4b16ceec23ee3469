"""`trainperf show --json` keeps its contract (docs/show-json.md)."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from runfiles import RunFile
from trainperf.cli.main import main
from trainperf.report import json as as_json
from trainperf.runfile.schema import CAUSES, PHASES

DOCS = Path(__file__).resolve().parents[2] / "docs" / "show-json.md"


def shown(file: RunFile, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert main(["show", str(file.build()), "--json", *options]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def hog(path: Path) -> RunFile:
    file = RunFile(path, cwd="/home/me")
    writer = file.thread("writer")
    file.steps(100, compute=8.0, gil_wait=4.0, flags=2)
    file.detail("gil_wait", 400, thread=writer, stack=file.stack("/home/me/train.py:41 dump"))
    return file.overhead(marks=0.4, collector=0.4).dropped(marks=2, samples=1).tier("gil_holds", "off", "not asked for")


def test_the_contract(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    d = shown(hog(tmp_path / "a.tpr"), capsys)
    assert d["schema_version"] == 1 and d["trainperf"] == "0.1.0"
    assert d["run"] | {"name": ""} == {
        "started": "2026-01-02T03:04:05Z",
        "host": "box",
        "python": "3.11.7",
        "torch": "2.13.0",
        "ended": "normally",
        "name": "",
    }
    assert d["verdict"]["finding"] == "TP201" and "\n" not in d["verdict"]["text"]
    assert d["verdict"]["kind"] == "finding"
    assert d["steps"] == {"count": 100, "incomplete": 0, "median_ms": 12.0, "p95_ms": 12.0}
    assert list(d["causes"]) == list(CAUSES) and list(d["phases"]) == list(PHASES)
    assert sum(c["share"] for c in d["causes"].values()) == pytest.approx(1)
    assert sum(c["share"] for c in d["phases"].values()) == pytest.approx(1)
    assert d["causes"]["gil_wait"] == {"ms_per_step": pytest.approx(4), "share": pytest.approx(1 / 3)}
    (finding,) = d["findings"]
    assert finding["id"] == "TP201" and finding["slug"] == "gil-hog" and finding["severity"] == "critical"
    assert finding["cause"] == "gil_wait" and finding["share"] == pytest.approx(1 / 3)
    assert finding["cost_ms_per_step"] == pytest.approx(4) and finding["confidence"] == "high"
    assert finding["who"] == ["writer"] and finding["where"] == "train.py:41"
    assert finding["docs"] == "docs/findings/TP201.md" and finding["evidence"] and finding["fix"]
    assert {"id": "TP302", "why": "gil_holds off: not asked for"} in d["abstained"]
    assert d["tiers"]["gil_waits"] == "exact" and d["tiers"]["gil_holds"] == "off: not asked for"
    assert d["overhead"] == {"ms_per_step": pytest.approx(0.008), "share": pytest.approx(0.8 / 1200)}
    assert d["dropped"]["events"] == 3 and "per_step" not in d


def test_per_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    d = shown(hog(tmp_path / "a.tpr"), capsys, "--steps")
    assert len(d["per_step"]) == 100
    for index, row in enumerate(d["per_step"]):
        assert row["index"] == index and row["count"] == 1 and "gil_contended" in row["flags"]
        assert sum(row["causes_ns"].values()) == sum(row["phases_ns"].values()) == row["wall_ns"] == 12_000_000
        assert list(row["causes_ns"]) == list(CAUSES) and list(row["phases_ns"]) == list(PHASES)


def test_rows_of_long_runs_say_how_many_steps_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    d = shown(RunFile(tmp_path / "a.tpr").steps(64, compute=2.0).merge_steps(8), capsys, "--steps")
    assert [(r["index"], r["count"], r["wall_ns"]) for r in d["per_step"]] == [
        (i, 8, 16_000_000) for i in range(0, 64, 8)
    ]
    assert d["steps"]["count"] == 64


def test_a_run_without_steps_is_valid_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    d = shown(RunFile(tmp_path / "a.tpr", ended="killed"), capsys, "--steps")
    assert d["steps"] == {"count": 0, "incomplete": 0, "median_ms": None, "p95_ms": None}
    assert d["verdict"]["finding"] is None and d["run"]["ended"] == "killed" and d["per_step"] == []
    assert sum(c["share"] for c in d["causes"].values()) == 0


def test_warm_up_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    d = shown(RunFile(tmp_path / "a.tpr").steps(1, compute=5.0, flags=16), capsys)
    assert d["steps"]["count"] == 1 and d["steps"]["median_ms"] is None


def test_the_docs_name_every_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    d = shown(hog(tmp_path / "a.tpr"), capsys, "--steps")
    text = DOCS.read_text()
    keys = set(d) | set(d["findings"][0]) | set(d["per_step"][0]) | set(d["run"]) | set(d["steps"]) | set(d["verdict"])
    missing = {k for k in keys if not re.search(rf'[`".]{k}[`"]', text)}
    assert missing == set()
    assert all(f"`{flag}`" in text for flag in as_json.FLAGS)
