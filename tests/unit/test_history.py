"""Runs of one name: where they go, how they are listed, and when one is said to be slower than the last five."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from runfiles import RunFile
from trainperf.cli.main import main
from trainperf.findings.model import Abstained, Finding
from trainperf.history import LAST, Past, earlier
from trainperf.settings import resolve


def past(median: float, **options: Any) -> Past:
    values: dict[str, Any] = {
        "file": "resnet-old.tpr", "started": "2026-01-01T00:00:00Z", "steps": 100, "median_ms": median,
        "mean_ms": median, "batch_size": 0, "causes": {"compute": median},
    }  # fmt: skip
    return Past(**values | options)


def found(tmp_path: Path, before: list[Past], steps: int = 60, host: bool = True, **causes: float) -> Any:
    """TP403's outcome: a Finding, an Abstained, or None."""
    file = RunFile(tmp_path / "now.tpr", name="resnet", history=Past.dump(before))
    file.step(compute=500.0, flags=16)
    file.steps(steps, **causes)
    if host:
        file.host(10, process_cpus=1.0, idle_cpus=1.0)
    with file.open() as run:
        outcomes = [*run.judged.findings, *run.judged.abstained]
    return next((o for o in outcomes if o.id == "TP403"), None)


FIVE = [past(10.0), past(10.2), past(9.9), past(10.1), past(10.0)]


def test_slower_than_the_last_five_is_said_with_its_cause(tmp_path: Path) -> None:
    finding = found(tmp_path, FIVE, compute=10.0, gil_wait=2.5)
    assert isinstance(finding, Finding) and finding.severity == "warning"
    assert finding.cause == "gil_wait" and finding.params["slower"] == pytest.approx(0.25)
    assert (
        finding.params["earlier"] == pytest.approx((10e6, 10.1e6, 9.9e6, 10.2e6, 10e6))
        and finding.params["more"] == 2.5e6
    )


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (FIVE, 10.0),
        (FIVE, 8.0),
        (FIVE, 10.9),  # within 10 %
        ([past(10.0), past(14.0), past(10.0), past(13.0), past(8.0)], 14.5),  # within their own spread
        ([past(10.0), past(10.0), past(10.0), past(10.0), past(12.5)], 12.0),  # one of them was slower
    ],
)
def test_as_fast_as_before_says_nothing(tmp_path: Path, before: list[Past], now: float) -> None:
    assert found(tmp_path, before, compute=now) is None


def test_one_bad_run_among_the_five_does_not_hide_the_next(tmp_path: Path) -> None:
    before = [past(10.0), past(10.1), past(9.9), past(10.0), past(11.9)]
    assert isinstance(found(tmp_path, before, compute=10.0, gil_wait=2.5), Finding)


@pytest.mark.parametrize(("seconds", "now", "said"), [(3, 13.3, False), (3, 18.0, True), (15, 13.3, True)])
def test_work_of_a_short_run_takes_longer_on_another_clock(
    tmp_path: Path, seconds: int, now: float, said: bool
) -> None:
    """Of identical runs of 3 s one was reported as 33% slower."""
    before = [past(p.median_ms, steps=100 * seconds) for p in FIVE]
    outcome = found(tmp_path, before, steps=100 * seconds, compute=now)
    assert isinstance(outcome, Finding if said else Abstained), outcome
    assert said or (isinstance(outcome, Abstained) and outcome.variant == "history_clock")


def test_steps_that_vary_do_not_make_a_run_slower(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "now.tpr", name="resnet", history=Past.dump(FIVE))
    for step in range(60):
        file.step(compute=8.0, gil_wait=0.0 if step < 25 else 6.0)
    with file.host(10, process_cpus=1.0, idle_cpus=1.0).open() as run:
        (outcome,) = [o for o in (*run.judged.findings, *run.judged.abstained) if o.id == "TP403"]
    assert isinstance(outcome, Abstained) and outcome.variant == "history_varies"


def test_a_busy_machine_is_not_the_program(tmp_path: Path) -> None:
    assert found(tmp_path, FIVE, compute=10.0, descheduled=5.0) is None


@pytest.mark.parametrize(
    ("before", "steps", "variant", "known"),
    [
        ([], 60, "history_few_runs", {"runs": 0, "least": 3}),
        (FIVE[:2], 60, "history_few_runs", {"runs": 2, "least": 3}),
        (FIVE, 5, "history_few_steps", {"steps": 5}),
    ],
)
def test_it_abstains(tmp_path: Path, before: list[Past], steps: int, variant: str, known: dict[str, int]) -> None:
    outcome = found(tmp_path, before, steps=steps, compute=20.0)
    assert isinstance(outcome, Abstained) and outcome.variant == variant and known.items() <= outcome.params.items()


def test_other_batch_sizes_do_not_count(tmp_path: Path) -> None:
    before = [past(10.0, batch_size=8)] * 5
    file = RunFile(tmp_path / "now.tpr", name="resnet", history=Past.dump(before)).steps(60, compute=80.0)
    file.loader(1, fetches=60, wait=1, batch_size=64)
    with file.open() as run:
        outcome = next(a for a in run.judged.abstained if a.id == "TP403")
    assert (outcome.variant, outcome.params["runs"], outcome.params["others"]) == ("history_few_runs", 0, 5)


WRONG = json.dumps([{**json.loads(Past.dump(FIVE))[0], "median_ms": "fast"}])


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"file": "x"}]', "[" * 100_000, WRONG])
def test_a_history_that_is_none_is_none(text: str) -> None:
    assert Past.parse(text) == []


# The files


def write(folder: Path, number: int, *, name: str = "resnet", ms: float = 10.0, **meta: str) -> Path:
    facts: dict[str, Any] = {"name": name, "host": "box", "started": f"2026-01-{number:02}T00:00:00Z"} | meta
    file = RunFile(folder / f"{name}-{number}.tpr", **facts)
    file.step(compute=99.0, flags=16)
    path = file.steps(30, compute=ms).build()
    os.utime(path, (number * 100, number * 100))
    return path


def test_the_last_five_of_name_host_and_rank(tmp_path: Path) -> None:
    for number in range(1, 8):
        write(tmp_path, number, ms=float(number))
    write(tmp_path, 10, name="resnet50")
    write(tmp_path, 11, host="elsewhere")
    write(tmp_path, 12, rank="1")
    write(tmp_path, 13, ended="killed")
    (tmp_path / "resnet-14.tpr").write_text("no run at all")
    (tmp_path / "resnet-15.txt").write_text("nor this")
    write(tmp_path, 16, ms=16.0)
    (tmp_path / "resnet-16.tpr-wal").write_bytes(b"still being written")
    runs = earlier(str(tmp_path), "resnet", host="box", rank="")
    assert [run.file for run in runs] == [f"resnet-{n}.tpr" for n in (7, 6, 5, 4, 3)] and len(runs) == LAST
    assert runs[0].median_ms == pytest.approx(7.0, rel=0.02) and runs[0].mean_ms == pytest.approx(7.0)
    assert runs[0].causes == {"compute": pytest.approx(7.0)} and runs[0].steps == 30
    assert Past.parse(Past.dump(runs)) == runs
    assert [r.file for r in earlier(str(tmp_path), "resnet", host="box", rank="1")] == ["resnet-12.tpr"]


def test_a_folder_makes_a_new_file_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    for path in ("new/", "there", tmp_path / "there"):
        made = resolve(path, name="res net/1", environ={}).run_path()
        assert Path(made).parent.name in ("new", "there") and Path(made).name.startswith("res_net_1-")
        assert made.endswith(".tpr")
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="file/ is not a folder"):
        resolve("file/", environ={})


def test_the_list_oldest_first_with_trends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, ms in ((1, 10.0), (2, 10.0), (3, 13.0)):
        write(tmp_path, number, ms=ms)
    write(tmp_path, 4, name="vit", ms=40.0)
    write(tmp_path, 5, ms=50.0, rank="1")
    (tmp_path / "torn.tpr").write_bytes(b"SQLite format 3\0" + b"x" * 10)
    assert main(["history", str(tmp_path)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in out)
    assert [line.split()[2] for line in out[1:5]] == ["resnet", "resnet", "resnet", "vit"]
    assert "+0%" in out[2] and "+30%" in out[3] and not re.search(r"[+-]\d+%", out[4])
    assert "resnet  ▁▁█  10 -> 13 ms" in out
    assert "resnet rank 1" in out[5] and "%  " not in out[5].partition("ms")[2].partition("compute")[0]
    assert any(line.startswith("not read: ") and "torn.tpr" in line for line in out)


def test_runs_without_a_name_are_told_apart_by_their_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 2, 3):
        write(tmp_path, number, name="")
    assert main(["history", str(tmp_path), "-n", "0"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[1] == "name" and len(rows) == 3
    assert {row.split()[2] for row in rows} == {path.stem for path in tmp_path.glob("*.tpr")}


@pytest.mark.parametrize("trends", [True, False])
def test_a_long_name_gives_way_to_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str], trends: bool) -> None:
    for number in (1, 2):
        file = RunFile(
            tmp_path / f"{number}.tpr",
            name="resnet50-imagenet" if trends else f"resnet50-imagenet-{number}",
            started=f"2026-01-0{number}T00:00:00Z",
            host="h",
        )
        file.steps(40, blocked_io=30.0, compute=9.0)
        file.open().close()
    assert main(["history", str(tmp_path)]) == 0
    head, *rows = (line for line in capsys.readouterr().out.splitlines() if line.startswith(("started", "2026")))
    assert len(rows) == 2 and max(map(len, rows)) <= 80
    assert ("trend" in head) == trends  # else it is empty in all rows
    assert all("  blocked, 30.0 " in row for row in rows), rows


def test_the_list_as_json_of_one_name_and_few(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(1, 5):
        write(tmp_path, number, ms=10.0 + number)
    write(tmp_path, 9, name="vit")
    assert main(["history", str(tmp_path), "--name", "resnet", "-n", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [run["median_ms"] for run in document["runs"]] == [13.0, 14.0]
    assert document["runs"][1]["change"] == pytest.approx(14 / 13 - 1) and document["runs"][0]["change"] is None


@pytest.mark.parametrize(("words", "code"), [(["no/such/folder"], 1), (["-n", "-1"], 2), (["."], 0)])
def test_a_folder_without_runs(
    tmp_path: Path, words: list[str], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["history", *words]) == code
    captured = capsys.readouterr()
    if code == 0:
        assert captured.out == "no run files here\n"
    elif code == 1:
        assert captured.err == "trainperf history: no/such/folder does not exist: name one that has run files\n"
