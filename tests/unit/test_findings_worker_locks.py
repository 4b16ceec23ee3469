"""TP102 where the workers wait for a lock that they share."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from runfiles import RunFile
from trainperf.findings.loaders import SharedLock, shared_lock
from verdicts import LINUX, TRAIN, Make, only

FUTEX, FLOCK, FCNTL, SLEEP, POLL = 202, 73, 72, 230, 7


def lock(workers: int, *waits: dict[tuple[int, bool], int]) -> SharedLock | None:
    facts: Any = SimpleNamespace(machine="x86_64")
    loader: Any = SimpleNamespace(workers=[SimpleNamespace(waits=of) for of in waits])
    return shared_lock(facts, loader, workers)


@pytest.mark.parametrize(
    ("call", "name", "of_file"),
    [((FUTEX, True), "futex", False), ((FLOCK, False), "flock", True), ((FCNTL, False), "fcntl", True)],
)
def test_two_workers_at_one_lock_wait_half_of_the_time(call: tuple[int, bool], name: str, of_file: bool) -> None:
    turns = {call: 12, (SLEEP, False): 12}
    found = lock(2, turns, turns)
    assert found == SharedLock(0.5, name) and found.of_file == of_file


def test_what_is_no_lock_of_several_processes_is_none() -> None:
    assert lock(2, {(FUTEX, False): 20, (POLL, False): 10}, {(-1, False): 30}) is None


def test_four_workers_at_one_lock_would_wait_more() -> None:
    assert lock(4, *[{(FUTEX, True): 6, (SLEEP, False): 18}] * 4) is None
    assert lock(4, *[{(FUTEX, True): 18, (SLEEP, False): 6}] * 4) == SharedLock(0.75, "futex")


def test_too_few_looks_say_nothing() -> None:
    assert lock(2, {(FUTEX, True): 3, (SLEEP, False): 3}) is None


def _locked(make: Make, call: tuple[int, bool], **marks: list[list[object]]) -> RunFile:
    file = make(cpus="8", platform=LINUX, source_marks=json.dumps(marks))
    file.steps(100, {("fetch", "blocked"): 6.0}, compute=6.0)
    options = {"num_workers": 2, "dataset": "Rows", "dataset_at": f"{TRAIN}:9"}
    file.loader(1, fetches=100, wait=600, ready={0: (100, 600)}, **options)
    for pid in (71, 72):
        file.worker(1, pid, cpu_share=0.3, seconds=20, states={"S": 20, "R": 5}, waits={call: 20, (SLEEP, False): 20})
    return file


def test_workers_that_wait_for_one_lock_are_to_have_a_handle_each(make: Make) -> None:
    f = only(_locked(make, (FUTEX, True), **{TRAIN: [[12, 12, "file_lock"]]}))
    assert (f.id, f.variant, f.params["locked"]) == ("TP102", "locked", 0.5)
    assert "one handle per worker" in f.fix and f.where == "train.py:9"


def test_handles_of_their_own_do_not_help_workers_that_lock_a_file(make: Make) -> None:
    """It was advised to workers of which each had one."""
    f = only(_locked(make, (FLOCK, False)))
    assert f.variant == "file_locked" and "file lock (flock)" in f.why
    assert "handle" not in f.fix and "one handle per worker" in f.will_not_help


@pytest.mark.parametrize(
    ("lines", "others", "where"),
    [([12], [], "train.py:12"), ([], [30], "io.py:30"), ([12], [30], "train.py:12"), ([12, 15], [], "train.py:9")],
)
def test_the_place_is_the_one_line_that_locks_a_file(
    make: Make, lines: list[int], others: list[int], where: str
) -> None:
    marks = {TRAIN: lines, TRAIN.replace("train", "io"): others}
    file = _locked(make, (FLOCK, False), **{of: [[n, n, "file_lock"] for n in lines] for of, lines in marks.items()})
    assert only(file).where == where
