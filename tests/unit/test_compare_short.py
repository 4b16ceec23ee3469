"""Comparing runs of a few seconds: what their machine may have done is no verdict; and any two runs turned around."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from compared_runs import COMPUTE, compared, noisy, pair, write
from trainperf.cli.main import main
from trainperf.comparison import compare

OPPOSITE = {"slower": "faster", "faster": "slower", "same": "same", "unknown": "unknown"}


@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_of_many_pairs_none_says_another_thing_turned_around(tmp_path: Path, short: bool, known: bool) -> None:
    """Of all that it can say: by causes, with time off the CPUs, of other lengths, and of a busy machine."""
    import trainperf

    rng = np.random.default_rng(7)
    ms = COMPUTE / 30 if short else COMPUTE
    runs = []
    for i, scale in enumerate((1.0, 1.0, 1.12, 1.3)):
        causes = {"data_wait": ms * rng.choice([0.1, 0.5, 3.0]), "descheduled": ms * rng.choice([0.05, 0.3])}
        others = float(rng.choice([0.0, 0.3, 0.9]))
        steps = noisy(rng, int(rng.choice([120, 150])), ms * scale)
        path = write(tmp_path / f"{i}.tpr", steps, host=(1.0, others) if known else None, **causes)
        runs.append(trainperf.open(path))
    kinds = set()
    for i, a in enumerate(runs):
        for b in runs[i + 1 :]:
            there, back = compare(a, b), compare(b, a)
            kinds |= {there.kind, back.kind}
            assert back.kind == OPPOSITE[there.kind], (there.verdict, back.verdict)
            if there.relative is None or back.relative is None:
                assert there.relative is back.relative
                continue
            assert there.machine_left_out == back.machine_left_out
            for x, y in zip(there.relative, (back.relative[0], back.relative[2], back.relative[1]), strict=True):
                assert (1 + x) * (1 + y) == pytest.approx(1)
            for result in (there, back):  # the percentage and the table's row are of the same thing
                assert result.total is not None and result.relative is not None
                assert result.total.low == pytest.approx(result.total.before * result.relative[1])
    for run in runs:
        run.close()
    assert {"slower", "faster", "unknown"} <= kinds


# Short runs


def short_pair(
    tmp_path: Path, *, compute: float = 1.0, host: tuple[float, float] | None, **causes: float
) -> list[Path]:
    """Steps of 1.4 and, times `compute`, longer ms; 400 of them."""
    rng = np.random.default_rng(11)
    quick = {"data_wait": 0.2, "descheduled": 0.7}
    return [
        write(tmp_path / "a.tpr", noisy(rng, 400, 1.4), host=host, **quick),
        write(tmp_path / "b.tpr", noisy(rng, 400, 1.4 * compute), host=host, **{**quick, **causes}),
    ]


def test_a_large_slow_down_is_told_though_nobody_knows_who_used_the_cpus(tmp_path: Path) -> None:
    """With the time off the CPUs it is another number than without; both say that it is slower, and by far."""
    a, b = short_pair(tmp_path, host=None, data_wait=6.6)
    there, back = compared(a, b), compared(b, a)
    assert there.kind == "slower" and there.regressed(0.05), there.verdict
    assert re.match(
        r"slower by at least 2\d\d%: .* -> data-starved \(\+2\d\d% with .*, \+3\d\d% without", there.verdict
    )
    assert back.kind == "faster" and back.verdict.startswith("faster by at least 7"), back.verdict
    assert there.relative is not None and there.relative[0] == pytest.approx(6.4 / 2.3, rel=0.05)  # the smaller
    assert main(["compare", str(a), str(b), "--fail-over", "5%"]) == 3
    assert main(["compare", str(b), str(a), "--fail-over", "5%"]) == 0


def test_compute_alone_of_short_runs_is_no_evidence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A clock or a neighbour does it to equal programs; of long runs, and of what they cannot do, it is told."""
    a, b = short_pair(tmp_path, compute=1.4, host=(1.0, 0.0))
    assert main(["compare", str(a), str(b), "--fail-over", "5%"]) == 4
    out = " ".join(capsys.readouterr().out.split())
    assert re.search(r"cannot tell: compute per step took 3\d% longer and nothing else changed; in runs of", out)
    assert "run each for 10 s or more" in out and "Note the runs last 0.9 and 1.1 s: below 10 s two runs" in out
    assert re.search(r"took (2\d|30)% less", compared(b, a).verdict)
    (tmp_path / "more").mkdir()
    assert compared(*short_pair(tmp_path / "more", compute=2.5, host=(1.0, 0.0))).kind == "slower"
    (tmp_path / "data").mkdir()
    both = compared(*short_pair(tmp_path / "data", compute=1.4, host=(1.0, 0.0), data_wait=0.9))
    assert both.kind == "slower" and any("the runs last" in note for note in both.notes)


@pytest.mark.parametrize("before", [0.0, 0.05])
def test_python_that_came_beside_the_same_compute_is_no_other_clock(tmp_path: Path, before: float) -> None:
    """That would have made all of the work longer."""
    rng = np.random.default_rng(11)
    a, b = (write(tmp_path / f"{ms}.tpr", noisy(rng, 400, 1.4), python=ms) for ms in (before, 0.7))
    there, back = compared(a, b), compared(b, a)
    assert (there.kind, back.kind) == ("slower", "faster"), (there.verdict, back.verdict)
    assert there.causes[0].name == "python"


def test_the_same_of_long_runs_is_told_without_a_note(tmp_path: Path) -> None:
    result = compared(*pair(tmp_path, seed=4, scale=1.18))
    assert result.kind == "slower" and result.notes == (), result.verdict


def test_short_runs_are_allowed_to_differ_by_more_unless_it_is_said_by_how_much(tmp_path: Path) -> None:
    a, b = short_pair(tmp_path, host=(1.0, 0.0))
    usual, said, long = (
        r[2] - r[1]
        for r in (
            compared(a, b).relative,
            compared(a, b, between_runs=0.05).relative,
            compared(*pair(tmp_path)).relative,
        )
        if r is not None
    )
    assert usual > 1.2 * said and usual > 1.2 * long


# Runs that were kept off the CPUs for most of their time


def hindered_pair(
    tmp_path: Path, *, off: float, others: tuple[float, float] = (1.5, 1.5), **first: float
) -> list[Path]:
    """The same 1.4 ms of work a step; the second run is kept off the CPUs for the share `off` of its time.

    `first`: what else the first run's steps have.
    """
    rng = np.random.default_rng(12)
    work = first.pop("compute", 1.4)
    waits = 1.4 * off / (1 - off)
    return [
        write(tmp_path / "a.tpr", noisy(rng, 400, work), host=(0.4, others[0]), **first),
        write(tmp_path / "b.tpr", noisy(rng, 400, 1.4), host=(0.4, others[1]), descheduled=waits),
    ]


def test_what_no_machine_can_do_is_told_of_a_run_that_hardly_ran(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run that was hindered more is the faster one."""
    a, b = hindered_pair(tmp_path, off=0.55, data_wait=10.0, descheduled=3.0)
    there, back = compared(a, b), compared(b, a)
    assert there.kind == "faster" and back.kind == "slower", (there.verdict, back.verdict)
    assert re.match(r"faster by at least [45]\d%: .* \(-7\d% with CPU", there.verdict), there.verdict
    assert re.match(r"slower by at least \d+%: ", back.verdict) and back.regressed(0.05), back.verdict
    assert there.relative is not None and there.relative[0] == pytest.approx(3.1 / 14.4 - 1, abs=0.02)  # the smaller
    assert any("CPU contention took 5" in n and "run it again" in n for n in there.notes)
    assert main(["compare", str(b), str(a), "--fail-over", "5%"]) == 3
    assert "faster by at least" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("first", "others"),
    [
        ({}, (1.5, 1.5)),  # the same program, on a quiet and on a busy machine
        ({}, (0.2, 1.8)),
        ({"compute": 2.3}, (1.5, 1.5)),  # its clock was lower, or it had a neighbour on the core
        ({"compute": 0.85}, (1.5, 1.5)),
        ({"compute": 0.5}, (0.2, 1.8)),
        ({"descheduled": 1.0, "compute": 2.3, "data_wait": 1.5}, (1.5, 1.5)),  # its workers were kept off, too
        ({"data_wait": 10.0}, (1.9, 0.4)),  # as here: the first run's machine was the busier one
    ],
)
@pytest.mark.parametrize("off", [0.6, 0.75])
def test_of_one_program_that_was_kept_off_the_cpus_nothing_is_told(
    tmp_path: Path, first: dict[str, float], others: tuple[float, float], off: float
) -> None:
    a, b = hindered_pair(tmp_path, off=off, others=others, **first)
    for result in (compared(a, b), compared(b, a)):
        assert result.kind == "unknown", result.verdict
        assert re.search(r"CPU contention took [5-7]\d% of the (first|second) run.*; run it again", result.verdict)
