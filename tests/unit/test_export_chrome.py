"""`trainperf export RUN -o t.json.gz`: what the timeline holds, and that it nests as viewers need it."""

from __future__ import annotations

import gzip
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import trainperf
from trainperf.cli.main import main


@pytest.fixture(scope="module")
def run_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "a.tpr"
    with trainperf.watch(path, verbose=False) as watch:
        for _ in range(30):
            with watch.phase("forward"):
                sum(range(2000))
            with watch.phase("logging"):
                pass
            watch.step()
    return path


def check(document: Any) -> list[dict[str, Any]]:
    """The rules of the trace event format that viewers rely on."""
    assert isinstance(document["traceEvents"], list)
    tracks: defaultdict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for event in document["traceEvents"]:
        assert event["ph"] in {"X", "M", "C"}
        assert isinstance(event["pid"], int)
        assert event["name"]
        if event["ph"] == "X":
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        elif event["ph"] == "C":
            assert all(isinstance(v, (int, float)) for v in event["args"].values())
    for slices in tracks.values():  # those of a track nest, or viewers drop them
        open_until: list[float] = []
        for start, end in sorted(slices, key=lambda s: (s[0], -s[1])):
            while open_until and open_until[-1] <= start + 1e-9:
                open_until.pop()
            assert not open_until or end <= open_until[-1] + 1e-3
            open_until.append(end)
    return list(document["traceEvents"])


def slices(events: list[dict[str, Any]], track: str) -> list[dict[str, Any]]:
    """Those of the track whose name begins so."""
    (tid,) = {e["tid"] for e in events if e["name"] == "thread_name" and e["args"]["name"].startswith(track)}
    return [e for e in events if e["ph"] == "X" and e["tid"] == tid]


def test_steps_and_phases_are_those_of_the_run(run_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "t.json.gz"
    assert main(["export", str(run_file), "-o", str(out)]) == 0
    events = check(json.loads(gzip.decompress(out.read_bytes())))
    with trainperf.open(run_file) as run:
        steps = slices(events, "steps")
        assert len(steps) == run.step_count >= 29
        assert sum(e["dur"] for e in steps) == pytest.approx(run.wall_ns / 1000, abs=0.001 * len(steps))
        for event, causes in zip(steps, run.steps.causes_ns, strict=True):
            told = sum(v for k, v in event["args"].items() if k.endswith("_ms"))
            assert told == pytest.approx(causes.sum() / 1e6)
        phases = slices(events, "phases")
        assert {"forward", "logging"} <= {e["name"] for e in phases}
        # Segments have no holes, so neither have the phases of a kept step.
        kept = {int(i): int(w) for i, w in zip(run.kept_steps.index, run.kept_steps.wall_ns, strict=True)}
        for step, wall in kept.items():
            assert sum(e["dur"] for e in phases if e["args"]["step"] == step) == pytest.approx(wall / 1000, abs=0.1)


def test_plain_and_packed_hold_the_same(run_file: Path, tmp_path: Path) -> None:
    plain, packed = tmp_path / "t.trace.json", tmp_path / "t.trace.json.gz"
    assert main(["export", str(run_file), "-o", str(plain)]) == 0
    assert main(["export", str(run_file), "-o", str(packed)]) == 0
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()


def test_refuses_to_overwrite(run_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "t.json.gz"
    out.write_text("mine")
    assert main(["export", str(run_file), "-o", str(out)]) == 1
    assert "-f" in capsys.readouterr().err
    assert out.read_text() == "mine"
    assert main(["export", str(run_file), "-o", str(out), "-f"]) == 0
    check(json.loads(gzip.decompress(out.read_bytes())))
    before = run_file.read_bytes()
    assert main(["export", str(run_file), "-o", str(run_file), "-f", "--format", "chrome"]) == 1
    assert run_file.read_bytes() == before


def test_errors_are_one_line_and_leave_nothing(
    run_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(run_file), "-o", str(tmp_path / "t.xyz")]) == 1
    assert ".json.gz" in capsys.readouterr().err
    assert main(["export", str(run_file), "-o", str(tmp_path / "no" / "t.json.gz")]) == 1
    assert main(["export", str(tmp_path / "none.tpr"), "-o", str(tmp_path / "t.json.gz")]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 2
    assert list(tmp_path.iterdir()) == []
    assert main(["export", str(run_file)]) == 2
