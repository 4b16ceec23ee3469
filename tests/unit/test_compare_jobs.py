"""Comparing two jobs of several ranks: their mean step, each rank, and who keeps the others waiting."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from compared_runs import COMPUTE, noisy
from runfiles import RunFile
from trainperf.cli.main import main
from trainperf.comparison import compare_jobs
from trainperf.ranks import open_job, ranks_in_words


def job(folder: Path, own: list[list[float]], slow: int | None = None, *, more: float = 0.0) -> Path:
    """A rank per list of ms; rank `slow` waits for data, `more` ms a step, and the others wait for it in backward."""
    folder.mkdir()
    for rank, steps in enumerate(own):
        file = RunFile(
            folder / f"job.rank{rank}.tpr", rank=str(rank), world_size=str(len(own)), host=f"node{rank // 2}"
        )
        waits = {("fetch" if rank == slow else "backward", "blocked"): more} if slow is not None else {}
        for ms in steps:
            file.step(waits, compute=ms)
        file.asleep(
            "backward", more * len(steps), "/v/site-packages/torch/autograd/graph.py:3 run", "/u/train.py:7 fit"
        )
        file.host(4, process_cpus=1.0, other_cpus=1.0, idle_cpus=0.0).build()  # the other: a rank on the same host
    return folder


def test_jobs_are_compared_rank_by_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = [[9 + i % 5 * 0.1 for i in range(100)]] * 4
    before, after = job(tmp_path / "before", own, slow=2, more=3.0), job(tmp_path / "after", own)
    page = tmp_path / "changed.html"
    assert main(["compare", str(before), str(after), "-o", str(page)]) == 5
    out = capsys.readouterr().out
    assert out.startswith("trainperf  faster by 25% ± ") and "data-starved -> " in out
    assert "(4 ranks, 100 steps" in out and "for rank 2 before, and" in out and "other processes" not in out
    for rank in range(4):
        cause = "data_wait" if rank == 2 else "blocked_io"
        assert re.search(rf"^ +rank {rank} +12.20 +9.20 +-3.00 .* {cause}$", out, re.M), out
    assert max(map(len, out.splitlines())) <= 80
    words = page.read_text()
    assert 'id="h-ranks"' in words and "straggler before" in words and "straggler after" not in words
    pattern = [str(folder / "job.rank*.tpr") for folder in (before, after)]
    assert main(["compare", *pattern, "--json"]) == 5
    document = json.loads(capsys.readouterr().out)
    assert [r["rank"] for r in document["ranks"]] == [0, 1, 2, 3]
    assert document["ranks"][2]["cause"]["name"] == "data_wait"
    sides = document["before"], document["after"]
    assert [(s["ranks"], s["straggler"]) for s in sides] == [(4, 2), (4, None)]
    assert sum(c["difference_ms"] for c in document["causes"].values()) == pytest.approx(-3.0)
    assert main(["compare", str(after), str(before), "--fail-over", "5%"]) == 3


def test_ranks_that_are_slow_together_make_nothing_surer(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    a, b = noisy(rng, 200, COMPUTE).tolist(), noisy(rng, 200, COMPUTE * 1.05).tolist()
    found = []
    for copies in (1, 6):
        names = [str(job(tmp_path / f"{name}{copies}", [steps] * copies)) for name, steps in (("a", a), ("b", b))]
        with open_job(names[0]) as before, open_job(names[1]) as after:
            found.append(compare_jobs(before, after, between_runs=0.1).relative)
    assert found[0] is not None and found[1] is not None
    assert found[0] == pytest.approx(found[1], abs=1e-6)


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        (3, r"before has ranks 0-3, .*after has ranks 0-2: give two runs with the same ranks, or one rank's file of"),
        (1, r"before has ranks 0-3, .*after has rank 0: give"),
    ],
)
def test_other_ranks_are_one_line(tmp_path: Path, ranks: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = job(tmp_path / "before", [[5.0] * 30] * 4), job(tmp_path / "after", [[5.0] * 30] * ranks)
    assert main(["compare", str(before), str(after)]) == 1
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1 and re.search(message, captured.err), captured.err
    files = sorted(map(str, before.iterdir()))
    assert main(["compare", *files, *files]) == 2  # as the shell makes it of patterns without quotes
    assert "quote a pattern" in capsys.readouterr().err
    assert main(["compare", f"{before}/nothing*", str(after)]) == 1
    assert "matches no file" in capsys.readouterr().err
    assert main(["compare", files[0], files[3], "--noise", "5%"]) == 0  # two files, whatever their ranks


def test_one_short_rank_is_named(tmp_path: Path) -> None:
    with (
        open_job(job(tmp_path / "a", [[5.0] * 30] * 2)) as before,
        open_job(job(tmp_path / "b", [[5.0] * 30, [5.0] * 3])) as after,
    ):
        found = compare_jobs(before, after)
    assert found.kind == "unknown" and "rank 1: too few steps: the second run has 3 steps" in found.verdict


def test_all_stragglers_are_marked_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quick, slow = [9 + i % 5 * 0.1 for i in range(100)], [14 + i % 5 * 0.1 for i in range(100)]
    before = job(tmp_path / "before", [quick, slow, quick, slow, quick])
    after = job(tmp_path / "after", [quick, slow, quick, quick, quick])
    page = tmp_path / "changed.html"
    main(["compare", str(before), str(after), "-o", str(page), "--json"])
    document = json.loads(capsys.readouterr().out)
    assert [sorted(document[side]["stragglers"]) for side in ("before", "after")] == [[1, 3], [1]]
    assert "the other ranks waited for ranks 1, 3 before, and for rank 1 after" in document["notes"]
    rows = dict(re.findall(r'<tr><th scope="row">(\d)(.*?)</th>', page.read_text()))
    assert not document["machine_left_out"]  # there is no time off the CPUs to leave out
    assert "two jobs" in page.read_text() and "the loop, of it" not in page.read_text()
    marked = {rank: re.findall("straggler (?:before|after)", row) for rank, row in rows.items()}
    assert marked == {
        "0": [], "1": ["straggler before", "straggler after"], "2": [], "3": ["straggler before"], "4": []
    }  # fmt: skip
    main(["compare", str(before), str(before), "--json"])
    assert "the other ranks wait for ranks 1, 3, before and after" in json.loads(capsys.readouterr().out)["notes"]


def test_of_very_many_ranks_those_that_changed_most_are_shown(tmp_path: Path) -> None:
    own = [[5.0] * 30 for _ in range(48)]
    after = [[5.0 + (rank == 47)] * 30 for rank in range(48)]
    page = tmp_path / "changed.html"
    main(["compare", str(job(tmp_path / "a", own)), str(job(tmp_path / "b", after)), "-o", str(page)])
    text = page.read_text()
    rows = re.findall(r'<tr><th scope="row">(\d+)', text.partition('id="h-ranks"')[2])
    assert len(rows) == 40 and rows[-1] == "47" and "and 8 more, which changed less." in text
    assert ranks_in_words(range(0, 100, 2)) == "ranks 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22 and 38 more"
