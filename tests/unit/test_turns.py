"""Of the benchmarks: who trains beside whom when trainings take turns, and the interval of their figures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.harness import Block, paired_interval  # the line above makes it importable
from benchmarks.turns import LEFT, NOTHING, OURS, Turns, figures

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import json, os, sys, threading
from benchmarks import turns

def training(name):
    def train(step_ended, steps):
        print(os.getpid(), name, file=open(sys.argv[1], "a"))
        for _ in range(steps):
            step_ended()
        if name == "fails":
            threading.Thread(target=threading.Event().wait).start()  # nobody ends it
            raise OSError("no space left")
    return turns.Training(train)

names = sys.argv[2:]
others = {name: training("plain" if name == turns.NOTHING else name) for name in names}
measured = turns.in_turns(training("plain"), others, step_ms=500, pairs=1, rounds=2)
laps = measured[0]
others = {name: len(its) for name, its in laps.others.items()}
print(json.dumps([len(laps.before), len(laps.plain), len(laps.since), others]))
"""


def in_turns(told: Path, *others: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(told), *others],
        check=False, cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def test_the_plain_training_beside_is_in_a_process_that_was_never_watched(tmp_path: Path) -> None:
    told = tmp_path / "told"
    done = in_turns(told, "ours", NOTHING, "peer")
    before, plain, since, others = json.loads(done.stdout)
    assert (before, plain, others) == (1, 2, {"ours": 2, NOTHING: 2, "peer": 2}), done.stderr
    trained: dict[str, list[str]] = {}
    for pid, name in map(str.split, told.read_text().splitlines()):
        trained.setdefault(pid, []).append(name)
    watched, beside = sorted(trained.values(), key=lambda names: names.count("plain"))
    assert beside == ["plain"] * 10  # to be warm, before any watch, and two rounds of four
    assert watched[:2] == ["plain"] * 2
    assert [sorted(watched[2:6]), sorted(watched[6:])] == [["ours", "peer", "plain", "plain"]] * 2
    first = next(i for i, name in enumerate(watched) if name != "plain")
    assert since == watched[first:].count("plain") >= 2


def test_a_training_that_fails_ends_them_whatever_threads_it_leaves(tmp_path: Path) -> None:
    done = in_turns(tmp_path / "told", "fails")
    assert "OSError: no space left" in done.stderr
    assert "RuntimeError: a training failed: its process ended with 1" in done.stderr


def block(ns: float) -> Block:
    return Block(ns, ns, ns, ns, ns)


def test_a_figure_is_free_of_what_makes_one_process_faster_and_of_a_lap_in_which_the_machine_was_slow() -> None:
    measured = [
        Turns(
            before=[(block(99 * faster), block(100))],
            plain=[(block(100 * faster), block(100)), (block(200 * faster), block(200))],
            since=[(block(200 * faster), block(200))],
            others={
                # Of a lap in five the machine was slow.
                OURS: [*[(block(102 * faster), block(100))] * 4, (block(150 * faster), block(100))],
                NOTHING: [(block(100 * faster), block(100))],
            },
        )
        for faster in (0.9, 1.0, 1.2)
    ]
    rows = figures("steps", measured, target=1.01)
    left = 100 / 99
    assert [row.value for row in rows] == pytest.approx([1.02] * 5 + [1.0] * 5 + [left] * 2)
    assert [row.name.partition(": ")[2].partition(",")[0] for row in rows] == [OURS] * 5 + [NOTHING] * 5 + [LEFT] * 2
    assert {row.note.split(";")[0] for row in rows[:10]} == {"3 pairs: 1.0200 .. 1.0200", "3 pairs: 1.0000 .. 1.0000"}
    assert [row.target for row in rows] == [1.01, 1.01, 1.01, 1.01, None, *[None] * 7]


def test_interval_of_signed_ranks() -> None:
    # Wilcoxon's tables: with 8 values the 4th of the 36 averages from either end, with 10 the 9th of 55.
    powers = [2.0**n for n in range(10)]
    assert paired_interval(powers[:8]) == (19.0, 2.5, 72.0)
    assert paired_interval(powers) == (64.0, 6.0, 257.0)
    # Symmetric around 0, moved by 3.
    assert paired_interval([3 + x for x in (-4, -2, -1, 1, 2, 4)]) == (3, -1, 7)


def test_no_interval_of_few_values() -> None:
    assert paired_interval([1.0, 2.0, 9.0]) == (3.5, None, None)
    assert paired_interval([1.0, 2.0, 3.0, 4.0, 5.0])[1:] == (None, None)
    assert paired_interval([0.0] * 6) == (0.0, 0.0, 0.0)
