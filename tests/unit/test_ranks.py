"""Ranks beside each other: who keeps whom waiting, where it can be told."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from runfiles import RunFile
from trainperf.cli.main import main
from trainperf.ranks import Ranks, open_job, ranks
from verdicts import LINUX

BACKWARD = ("/v/site-packages/torch/autograd/graph.py:824 _engine_run_backward", "/u/train.py:7 fit")
HOOK = ("/u/hooks.py:9 clip", *BACKWARD)
LOCK = ("/usr/lib/python3.11/threading.py:327 Condition.wait", *HOOK)
EXCHANGE = ("/v/site-packages/torch/distributed/distributed_c10d.py:9 all_reduce", "/u/train.py:8 fit")
HOROVOD = ("/v/site-packages/horovod/torch/mpi_ops.py:9 synchronize", *BACKWARD)


def judged(folder: Path, *files: RunFile) -> Ranks:
    for file in files:
        file.build()
    with open_job(folder) as job:
        found = ranks(job.runs)
    assert found is not None
    return found


def rank(folder: Path, number: int, cells: Mapping[tuple[str, str], float] | None = None, **causes: float) -> RunFile:
    return RunFile(folder / f"a.rank{number}.tpr", world_size="4", rank=str(number)).steps(50, cells, **causes)


@pytest.mark.parametrize(
    ("own", "stragglers", "said"),
    [
        ((100, 100, 100, 100.5), (), "4 ranks are even: their own work differs by 0.50 ms a step at most."),
        (
            (100, 100, 100, 60),
            (),
            "60.0 ms a step of its own work, the other 3 have 100.0 ms, and it waits for them.",
        ),
        ((60, 100, 100, 61, 100), (), "Ranks 0, 3 have less to do: 60.0 to 61.0 ms a step of their own work"),
        ((60, 100, 60, 61), (1,), "Rank 1 is the straggler: 100.0 ms a step of its own work, the others 60.0 to 61.0"),
        ((100, 101, 60, 60), (1, 0), "Ranks 0-1 are the stragglers: 100.0 to 101.0 ms a step of their own work"),
        ((60, 100, 100, 120), (3,), "Rank 3 is the straggler: 120.0 ms a step of its own work, the others 60.0 to 100"),
        (
            (100, 60),
            (0,),
            "100.0 ms a step of its own work, rank 1 has 60.0 ms. All wait for it",
        ),
        (
            (100, 103, 106, 109),
            (3,),
            "rises evenly from 100.0 ms a step (rank 0) to 109.0 ms (rank 3): all wait for rank 3",
        ),
    ],
)
def test_who_has_more_and_who_has_less_to_do(
    own: Sequence[float], stragglers: tuple[int, ...], said: str, tmp_path: Path
) -> None:
    files = [rank(tmp_path, i, compute=ms, collective=125.0 - ms) for i, ms in enumerate(own)]
    found = judged(tmp_path, *files)
    assert said in found.sentence and found.stragglers == stragglers
    assert found.even == ("even:" in found.sentence)


@pytest.mark.parametrize(
    ("asleep", "said", "own_ms"),
    [
        (HOOK, "Rank 0 is the straggler: 40.0 ms a step of its own work, rank 1 has 10.0 ms", 40),
        (LOCK, "Rank 0 is the straggler: 40.0 ms", 40),
        (BACKWARD, "The 2 ranks are even", 10),
        (EXCHANGE, "The 2 ranks are even", 10),
        (
            HOROVOD,
            "unclear which rank keeps the others waiting: rank 0 is asleep for 30.0 ms a step, and no sample says",
            40,
        ),
        (
            (),
            "unclear which rank keeps the others waiting: rank 0 is asleep for 30.0 ms a step, and no sample says",
            40,
        ),
    ],
)
def test_a_rank_that_sleeps_in_backward_is_not_acquitted(
    asleep: Sequence[str], said: str, own_ms: float, tmp_path: Path
) -> None:
    first = rank(tmp_path, 0, {("backward", "blocked"): 30.0}, compute=10.0)
    if asleep:
        first.asleep("backward", 1200, *asleep)  # not each sleep is sampled
    second = rank(tmp_path, 1, {("backward", "blocked"): 30.0}, compute=10.0).asleep("backward", 1500, *BACKWARD)
    found = judged(tmp_path, first, second)
    assert said in found.sentence and found.ranks[0].own_ms == pytest.approx(own_ms)
    assert found.vague(found.ranks[0]) == ("unclear" in said)
    if "blocked_io" in found.sentence:  # the other's sleep is no work of its own
        assert "mostly blocked_io (+30.0 ms)" in found.sentence


def test_sleep_in_the_backward_call_of_a_rank_with_collectives_is_for_nobody_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = rank(tmp_path, 0, {("backward", "blocked"): 25.0}, compute=10.0, collective=5.0)
    found = judged(
        tmp_path, first.asleep("backward", 1250, *BACKWARD), rank(tmp_path, 1, compute=10.0, collective=30.0)
    )
    assert "unclear" in found.sentence and found.stragglers == () and not found.even
    assert main(["show", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "up to 35.0" in out and "even" not in out and "1            40.0         10.0  waits for the others" in out
    assert main(["show", str(tmp_path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["straggler"], document["stragglers"], document["ranks"][0]["unclear_ms"]) == (None, [], 25.0)


@pytest.mark.parametrize(
    ("python", "said"),
    [
        (12.0, "mostly python (+10.0 ms) and, as CPUs are short, descheduled (+15.0 ms)."),
        (24.0, "the difference is mostly python (+22.0 ms)."),
        (5.0, "the difference is mostly descheduled (+15.0 ms)."),
    ],
)
def test_who_does_more_and_is_kept_off_the_cpu_for_longer_is_told_by_what_it_does(
    python: float, said: str, tmp_path: Path
) -> None:
    slow = rank(tmp_path, 1, python=python, compute=5.0, descheduled=27.0)
    found = judged(tmp_path, rank(tmp_path, 0, python=2.0, compute=5.0, descheduled=12.0, collective=25.0), slow)
    assert found.stragglers == (1,) and said in found.sentence


@pytest.mark.parametrize(("world", "known"), [(2, True), (3, False)])
def test_the_late_rank_is_not_told_to_look_for_the_late_one(
    world: int, known: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of three, the third one's file is missing, which may be later still."""
    for number, own in ((0, 40.0), (1, 10.0)):
        cells = {("backward", "blocked"): 60.0 - own, ("forward", "native"): own}
        file = rank(tmp_path, number, cells).meta(world_size=str(world), process_group="1", platform=LINUX)
        stack = file.stack(*BACKWARD)
        file.detail("sample", 50 * (60.0 - own), phase="backward", state="blocked", code=202, stack=stack).build()
    assert main(["show", str(tmp_path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "has 10.0 ms. All wait for it" in shown
    assert ("the other ranks wait for this one" in shown, "does not show whether" in shown) == (known, not known)


@pytest.mark.parametrize("told", ["many", "-3", "", "9" * 5000])
def test_a_number_of_ranks_that_is_none_is_not_known(told: str, tmp_path: Path) -> None:
    files = [rank(tmp_path, i, compute=40.0).meta(world_size=told) for i in range(2)]
    assert judged(tmp_path, *files).complete is False


@pytest.mark.parametrize(("world", "known"), [(2, True), (3, False)])
def test_ranks_that_are_all_even_are_not_searched_for_the_late_one(
    world: int, known: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of three, the third one's file is missing, which may be the late one's."""
    for i in range(2):
        file = rank(tmp_path, i, {("backward", "blocked"): 30.0}, compute=10.0)
        file.detail("sample", 1500, phase="backward", state="blocked", code=202, stack=file.stack(*BACKWARD))  # a futex
        file.meta(world_size=str(world), process_group="1", platform=LINUX).build()
    assert main(["show", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "waits in backward for" in shown and "are even" in shown
    assert ("no rank is late" in shown, "does not show whether" in shown) == (known, not known)
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "a.html")]) == 0
    assert ("no rank is late" in (tmp_path / "a.html").read_text(encoding="utf-8")) == known


def test_what_all_ranks_exchange_is_not_said_to_be_waiting(tmp_path: Path) -> None:
    """Nobody is late where all of them take it; and who is late waits for nobody."""
    even = judged(tmp_path, *(rank(tmp_path, i, compute=40.0, collective=60.0) for i in range(2)))
    assert even.even and [even.told(r) for r in even.ranks] == [r.verdict for r in even.ranks]
    late = judged(tmp_path, *(rank(tmp_path, i, compute=own, collective=100 - own) for i, own in enumerate((46, 40))))
    assert late.stragglers == (0,) and late.told(late.ranks[0]) == late.ranks[0].verdict
    assert late.told(late.ranks[1]) == "waits for the others (or exchanges with them), 60.0 ms/step (60%)"


def test_what_is_unclear_of_one_rank_does_not_hide_another(tmp_path: Path) -> None:
    found = judged(
        tmp_path,
        rank(tmp_path, 0, {("backward", "blocked"): 5.0}, compute=10.0, collective=25.0),
        rank(tmp_path, 1, compute=10.0, collective=30.0),
        rank(tmp_path, 2, data_wait=29.0, compute=10.0, collective=1.0),
    )
    assert found.stragglers == (2,) and "39.0 ms a step of its own work, the others 10.0 to 15.0 ms" in found.sentence
