"""What the panels of a report are made from: changes of level, bins, distributions, flames, ranks."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runfiles import RunFile
from trainperf import ranks
from trainperf.cli.main import main
from trainperf.errors import TrainperfError
from trainperf.findings.facts import Facts
from trainperf.report import charts
from trainperf.report.details import bins, distribution, flames, gil, trend
from trainperf.report.details.host import CpuLane, host
from trainperf.report.html import render
from trainperf.report.model import build
from trainperf.runfile import HAS_CHECKPOINT, WARM_UP


def noisy(rng: np.random.Generator, *levels: tuple[int, float], noise: float = 0.05) -> np.ndarray:
    return np.concatenate([level * (1 + noise * np.abs(rng.standard_normal(n))) for n, level in levels])


@pytest.mark.parametrize(
    ("levels", "cuts"),
    [
        (((133, 23.0), (267, 14.0)), [133]),
        (((300, 10.0), (100, 13.0)), [300]),
        (((100, 10.0), (80, 20.0), (220, 10.0)), [100, 180]),
        (((4000, 1.4), (2000, 2.0)), [4000]),
    ],
)
def test_changes_are_found_where_they_are(levels: tuple[tuple[int, float], ...], cuts: list[int]) -> None:
    for seed in range(10):
        found = trend.changes(noisy(np.random.default_rng(seed), *levels))
        assert len(found) == len(cuts), (seed, found)
        assert all(abs(a - b) <= 3 for a, b in zip(found, cuts, strict=True)), (seed, found)


def test_noise_is_no_change() -> None:
    false = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        wall = noisy(rng, (400, 10.0), noise=0.3)
        wall[rng.integers(0, 400, 8)] *= 8  # single slow steps
        false += bool(trend.changes(wall))
    assert false <= 2


def test_two_kinds_of_steps_are_no_change() -> None:
    wall = np.where(np.arange(400) % 2, 4.0, 16.0) + np.random.default_rng(0).uniform(0, 0.5, 400)
    assert trend.changes(wall) == []


def said(file: RunFile) -> str:
    with file.open() as run:
        return " ".join(trend.trend(run).sentences)


def test_trend_says_drift_warm_up_and_steadiness(tmp_path: Path) -> None:
    rising = RunFile(tmp_path / "a.tpr")
    for i in range(400):
        rising.step(compute=10 + 0.004 * i + (i * 37 % 11) * 0.05)
    assert "goes up by 1" in said(rising)
    steady = RunFile(tmp_path / "b.tpr").steps(2, compute=50, flags=WARM_UP)
    for i in range(200):
        steady.step(compute=10 + (i * 37 % 11) * 0.05)
    text = said(steady)
    assert "2 warm-up steps (50.0 ms, 50.0 ms) are left out" in text and "Steady" in text
    assert "too few" in said(RunFile(tmp_path / "c.tpr").steps(5, compute=1))


def test_checkpoints_are_no_change_of_level(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "a.tpr")
    for i in range(200):
        late = i >= 100 and i % 2 == 0
        file.step(compute=10 + i % 3 * 0.1, checkpoint=30 if late else 0, flags=HAS_CHECKPOINT if late else 0)
    assert "from then on" not in said(file)


def test_bins_sum_to_the_run(tmp_path: Path) -> None:
    for steps, merge in ((500, 1), (5003, 1), (5003, 2)):
        file = RunFile(tmp_path / "a.tpr").merge_steps(merge)
        for i in range(steps):
            file.step(compute=2 + i % 5, gil_wait=i % 3, gc=0.001 * (i % 7), logging=0.002, python=0.001)
        with file.open() as run:
            found = bins.bins(run)
            assert found is not None
            wall = run.wall_ns
        assert len(found.steps) <= bins.EACH_STEP and int(found.steps.sum()) == steps
        assert float((found.mean_ms * found.steps).sum()) == pytest.approx(wall / 1e6)
        assert np.allclose(sum(values for _, values in found.layers), found.mean_ms)
        assert found.each_step == (steps == 500)


def test_bins_keep_the_longest_step(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "a.tpr")
    for i in range(9000):
        file.step(compute=900 if i == 7777 else 2)
    with file.open() as run:
        found = bins.bins(run)
    assert found is not None and found.max_ms.max() == 900
    at = int(np.argmax(found.max_ms))
    assert found.first[at] <= 7777 < found.first[at] + found.steps[at]
    assert int(found.at(7777)) == at and found.top_ms < 10  # the rest is not pressed flat


def test_distribution_counts_every_step_once(tmp_path: Path) -> None:
    for merge in (1, 4):
        file = RunFile(tmp_path / "a.tpr").merge_steps(merge).steps(3, compute=70, flags=WARM_UP)
        for i in range(997):
            file.step(compute=10 + (i % 10) * 0.2 if i != 500 else 300)
        with file.open() as run:
            found = distribution.distribution(run)
        assert found is not None
        assert sum(n for *_, n in found.bars) + found.beyond == found.steps == 997
        assert found.beyond == 1 and found.longest_ms == pytest.approx(300, rel=0.02)
        assert dict(found.quantiles)["median"] == pytest.approx(11, rel=0.03)


def test_labels_of_long_steps_do_not_lie_on_each_other(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "a.tpr")
    for i in range(120):
        file.step(compute=98.7 if i == 103 else 94.3 if i == 82 else 93 if i == 20 else 30)
    for step in (103, 82, 20):
        file.keep(step)
    with file.open() as run:
        page = render(run)
    assert re.findall(r'<span class="mark[^>]*><a href="#step-(\d+)"', page) == ["103", "20"]


def test_flame_adds_up_and_is_bounded(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "a.tpr").steps(50, compute=20)
    for i in range(900):
        deep = [f"/u/m.py:{d} f{i % 30}_{d}" for d in range(60)]
        file.detail("sample", 1 + i % 7, stack=file.stack(*deep), state="native", phase=("forward", "backward")[i % 2])
    file.detail("sample", 3, folded=12)
    with file.open() as run:
        found = flames.step_thread(run, Facts(run))
        total = sum(d.ns for d in run.detail_totals("sample")) / 1e6
    assert found is not None and found.total_ms == pytest.approx(total)
    assert len(found.frames) == 160 and max(f.depth for f in found.frames) < 40
    by_depth: dict[int, float] = {}
    for f in found.frames:
        assert f.start >= 0 and f.start + f.share <= 1 + 1e-9
        by_depth[f.depth] = by_depth.get(f.depth, 0) + f.share
    assert by_depth[0] == 1 and by_depth[1] == pytest.approx(1) and max(by_depth.values()) <= 1 + 1e-9


def test_flame_turned_around_tells_each_function_by_its_own_time(tmp_path: Path) -> None:
    """Called from two places, in two phases: one frame at depth 1, and below it who called it."""
    file = RunFile(tmp_path / "a.tpr").steps(50, compute=20)
    fit, collate = "/u/t.py:7 fit", "/u/t.py:30 collate"
    file.detail("sample", 300, stack=file.stack("/u/t.py:2 hot", fit), state="native", phase="forward")
    file.detail("sample", 100, stack=file.stack("/u/t.py:2 hot", collate, fit), state="python", phase="fetch")
    file.detail("sample", 60, stack=file.stack(collate, fit), state="python", phase="fetch")
    file.detail("sample", 40, stack=file.stack("/u/t.py:31 collate", fit), state="blocked", phase="fetch")
    file.detail("sample", 99, folded=7, phase="other")
    with file.open() as run:
        found = flames.step_thread(run, Facts(run))
    assert found is not None and {c.name for c in found.callers if c.depth == 1} > {
        "hot (/u/t.py)",
        "collate (/u/t.py)",
    }
    assert {c.name for c in found.callers if c.depth == 2} > {"fit (/u/t.py:7)", "collate (/u/t.py:30)"}
    rows = [(c.depth, c.name.partition(" (")[0], round(100 * c.share)) for c in found.callers]
    assert rows == [
        (0, "the training thread", 100),
        (1, "hot", 67), (2, "fit", 50), (3, "forward", 50), (2, "collate", 17), (3, "fit", 17), (4, "fetch", 17),
        (1, "collate", 17), (2, "fit", 17), (3, "fetch", 17),
        (1, "350 small ones without a stack", 17), (2, "other", 17),
    ]  # fmt: skip


def test_flame_turned_around_is_bounded_and_has_no_gap(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "a.tpr").steps(50, compute=20)
    for i in range(300):
        deep = [f"/u/m.py:{d} f{i % (3 + d)}_{d}" for d in range(30)]
        file.detail("sample", 1 + i % 7, stack=file.stack(*deep), state="native")
    with file.open() as run:
        found = flames.step_thread(run, Facts(run))
    assert found is not None and len(found.callers) <= 60 and max(c.depth for c in found.callers) <= 9
    left: list[float] = []  # by depth, of the frame above
    for c in found.callers:
        assert len(left) >= c.depth and (not c.depth or c.share <= left[c.depth - 1] + 1e-9), c
        if c.depth:
            left[c.depth - 1] -= c.share
        left[c.depth :] = [c.share]
    assert {f"f{i}_0" for i in range(3)} <= {c.name.partition(" (")[0] for c in found.callers if c.depth == 1}


def test_gil_rows_join_waits_and_holds(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "a.tpr").steps(50, compute=10, gil_wait=4)
    hog = file.thread("hog")
    for line in (41, 43):
        at = file.stack("/usr/lib/python3.11/json/__init__.py:9 dumps", f"/u/train.py:{line} crunch")
        file.detail("gil_wait", 100, thread=hog, stack=at, count=10).detail("hold", 130, thread=hog, stack=at)
    with file.open() as run:
        found = gil.gil(run, Facts(run))
        flame = flames.gil_holders(run, Facts(run))
    (row,) = found.rows
    assert (row.holder, row.function, row.top_frame) == ("hog", "crunch", "dumps")
    assert (row.waited_ms, row.held_ms, row.waits) == (200, 260, 20)
    assert flame is not None and flame.frames[1].name == "hog"


BACKWARD = "/v/site-packages/torch/autograd/graph.py:3 _engine_run_backward"


def test_a_straggler_is_who_waits_least(tmp_path: Path) -> None:
    files = []
    for rank, own in enumerate((9.0, 9.0, 12.0)):
        path = tmp_path / f"x.rank{rank}.tpr"
        # Gloo on CPUs: the others are blocked within backward until the slowest arrives.
        file = RunFile(path).steps(20, {("backward", "blocked"): 13 - own}, compute=own)
        file.asleep("backward", 20 * (13 - own), BACKWARD, "/u/train.py:7 fit").build()
        files.append(path)
    runs, errors = ranks.open_all(files)
    found = ranks.ranks(runs)
    assert found is not None and not errors
    assert found.straggler == 2 and "12.0 ms" in found.sentence and "mostly compute (+3.0 ms)" in found.sentence
    for run in runs:
        run.close()
    assert ranks.files_of(tmp_path) == files


@pytest.mark.parametrize(
    ("names", "numbers", "one"),
    [
        (("a.rank0", "a.rank1"), ("0", "1"), True),
        (("t_7_host", "t_9_host"), ("1", "0"), True),  # traces that were analyzed
        (("a.rank0", "b.rank1"), ("0", "1"), False),
        (("a", "b"), ("", ""), False),
        (("a", "b"), ("3", "3"), False),
        (("a.rank0", "other"), ("0", "1"), False),
    ],
)
def test_ranks_of_one_job_are_told_from_several_runs(
    tmp_path: Path, names: tuple[str, ...], numbers: tuple[str, ...], one: bool
) -> None:
    for name, rank in zip(names, numbers, strict=True):
        RunFile(tmp_path / f"{name}.tpr", rank=rank, world_size="2").steps(3, compute=1).build()
    if not one:
        with pytest.raises(TrainperfError, match="several runs"):
            ranks.open_all(ranks.files_of(tmp_path))
        return
    runs, _ = ranks.open_all(ranks.files_of(tmp_path))
    found = ranks.ranks(runs)
    assert found is not None and [r.rank for r in found.ranks] == [0, 1]
    for run in runs:
        run.close()


def test_ranks_are_shown_beside_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "job7"
    folder.mkdir()
    for rank, own in enumerate((9.0, 12.0, 9.0)):
        file = RunFile(folder / f"x.rank{rank}.tpr", host=f"node-{rank}", ended="killed" if rank == 2 else "normally")
        file.steps(40, {("backward", "blocked"): 13 - own, ("fetch", "native"): own})
        file.asleep("backward", 40 * (13 - own), BACKWARD, "/u/train.py:7 fit").build()
    RunFile(tmp_path / "job7" / "y.rank0.tpr").steps(3, compute=1).build()
    pattern = str(folder / "x.rank*.tpr")
    assert main(["show", pattern]) == 0
    out = capsys.readouterr().out
    assert " ".join(out.split()).startswith(
        "trainperf Rank 1 is the straggler: 12.0 ms a step of its own work, the others"
    )
    assert re.search(r"^1 node-1 +13.0 +12.0  data-starved", out, re.M)
    assert "\nOf rank 1, the straggler:\ntrainperf  data-starved" in out and out.count("\nTP101 ") == 1
    (path,) = (line for line in out.splitlines() if line.startswith("More  trainperf report "))
    assert path.endswith(f"{pattern}'")
    assert max(len(line) for line in out.splitlines() if line != path) <= 80
    assert main(["show", pattern, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["straggler"] == 1 and document["verdict"]["text"] == document["ranks"][1]["verdict"]
    assert [r["ended"] for r in document["ranks"]] == ["normally", "normally", "killed"]
    assert main(["report", pattern]) == 0
    assert capsys.readouterr().out.strip() == str(folder / "x.html")
    assert 'id="ranks"' in (folder / "x.html").read_text()
    # Two runs in one folder; and one rank's file that cannot be read.
    assert main(["show", str(folder)]) == 1
    assert "name one of them, or all ranks of one by a pattern ('y.rank*.tpr')" in capsys.readouterr().err
    (folder / "x.rank2.tpr").write_bytes(b"")
    assert main(["show", pattern]) == 0
    captured = capsys.readouterr()
    assert "straggler" in captured.out and captured.err.startswith("trainperf show: ") and "x.rank2.tpr" in captured.err


def test_the_mean_step_is_drawn_in_the_order_of_its_legend(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "a.tpr").steps(60, compute=2.0, python=5.0, blocked_io=3.0, gc=0.01)
    with file.detail("sample", 400, phase="backward", state="native").open() as run:
        report = build(run)
    drawn = re.findall(r"<title>(\w+): ", charts.mean_step(report))
    named = [entry.name for entry in charts.legend(report)]
    assert drawn[:3] == named[:3] == ["python", "blocked_io", "compute"] and set(drawn) == set(named)


def test_what_would_be_told_as_nothing_is_not_told(tmp_path: Path) -> None:
    for gc, rows in ((0.0001, 2), (0.01, 3)):
        file = RunFile(tmp_path / f"{gc}.tpr").steps(60, compute=2.0, python=5.0, gc=gc)
        with file.detail("sample", 400, phase="backward", state="native").open() as run:
            report, text = build(run), run.summary()
        assert len(charts.legend(report)) == rows and ("  gc " in text) == (rows == 3), text


def levels(*cpus: Sequence[int]) -> dict[str, list[int]]:
    """By CPU, its level at each reading: 0: it is not there; 1: idle; 15: busy all the time."""
    words = [0] * len(cpus[0])
    for number, of_cpu in enumerate(cpus):
        words = [word | level << (4 * number) for word, level in zip(words, of_cpu, strict=True)]
    return {"cpu_levels:0": [word - (1 << 64) if word >> 63 else word for word in words]}


def cpus_of(path: Path, machine: dict[str, list[int]], **meta: str) -> Any:
    file = RunFile(path, **meta).steps(100, compute=80)
    file.host(len(machine["cpu_levels:0"]) - 1, process_cpus=1.0, machine=machine)
    with file.open() as run:
        found = host(run)
    return found.lone, {s.name: s for s in found.series}


def test_one_cpu_in_full_use_beside_idle_ones(tmp_path: Path) -> None:
    told = levels(*[[1] * 9] * 3, [1, *[15] * 6, 8, 8], *[[2] * 9] * 11, [1] * 9)
    lone, series = cpus_of(tmp_path / "a.tpr", told | {"irq_levels:0": levels(*[[1] * 9] * 16)["cpu_levels:0"]})
    assert lone == (
        "In 75% of the seconds one CPU (mostly CPU 3) was in full use, and the other 15 that this run may use were "
        "nearly idle."
    )
    assert series["busiest CPU"].words.startswith("CPU 3,") and series["busiest CPU"].values[0] == 100
    assert series["CPUs in full use"].top == 16 and max(series["CPUs in full use"].values) == 1
    assert "interrupts" not in series


def test_the_cpus_have_a_lane(tmp_path: Path) -> None:
    """Each run of equal seconds is one rectangle; those in which a CPU was idle are none."""
    told = levels([1] * 9, [1, 15, 15, 15, 15, 8, 8, 8, 8], [0] * 9, [15] * 9)
    file = RunFile(tmp_path / "a.tpr").steps(100, compute=80).host(8, process_cpus=1.0, machine=told)
    with file.open() as run:
        lane, page = host(run).lane, render(run)
    assert lane is not None and lane.words == "CPUs 0 to 1 and 3" and lane.shares[1, 0] == 1
    drawn = charts.cpu_lane(lane)
    assert '<path fill-opacity="1" d="M0 1h4v1h-4zM0 2h8v1h-8z"/>' in drawn and "CPU 3 100%" in drawn
    assert '<path fill-opacity="0.5" d="M4 1h4v1h-4z"/>' in drawn and drawn.count("<path") == 2
    assert "CPUs 0 to 1 and 3, from top to bottom" in page and drawn in page


def test_a_lane_of_many_cpus_and_of_a_long_run_stays_small() -> None:
    busy = np.arange(256 * 5000, dtype=np.float64).reshape(256, 5000) % 7 / 6
    drawn = charts.cpu_lane(CpuLane(tuple(range(256)), busy))
    assert 'viewBox="0 0 120 64"' in drawn and len(drawn) < 60_000


@pytest.mark.parametrize(
    "told",
    [
        levels([15] * 9, [15] * 9),  # both work
        levels([15] * 9, [9] * 9),  # the other one works half of the time
        levels([8] * 9, [8] * 9),  # a thread that moves
        levels([15] * 9, [0] * 9),  # there is no other
        levels([15] * 4, [1] * 4),  # too few readings
    ],
)
def test_no_lone_cpu(tmp_path: Path, told: dict[str, list[int]]) -> None:
    assert cpus_of(tmp_path / "a.tpr", told | {"irq_levels:0": told["cpu_levels:0"]})[0] == ""


def test_cpus_that_the_run_may_not_use_are_left_out(tmp_path: Path) -> None:
    told = levels([15] * 9, [1] * 9, [15] * 9, [1] * 9)
    told |= {"irq_levels:0": levels([1] * 9, [1] * 9, [1] * 9, [6] * 9)["cpu_levels:0"]}
    lone, series = cpus_of(tmp_path / "a.tpr", told, cpu_room='[[0, 0, 0, "2-3", -1]]')
    assert "(mostly CPU 2)" in lone and "the other one that this run may use was" in lone
    assert series["interrupts"].words == "time that they take of CPU 3"
