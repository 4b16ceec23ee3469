"""TP102 where the workers wait for a lock that they share."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from trainperf.findings.loaders import lock_share
from verdicts import LINUX, Make, only

FUTEX, FLOCK, SLEEP, POLL = 202, 73, 230, 7


def share(workers: int, *waits: dict[tuple[int, bool], int]) -> float:
    facts: Any = SimpleNamespace(machine="x86_64")
    loader: Any = SimpleNamespace(workers=[SimpleNamespace(waits=of) for of in waits])
    return lock_share(facts, loader, workers)


@pytest.mark.parametrize("lock", [(FUTEX, True), (FLOCK, False)])
def test_two_workers_at_one_lock_wait_half_of_the_time(lock: tuple[int, bool]) -> None:
    turns = {lock: 12, (SLEEP, False): 12}
    assert share(2, turns, turns) == pytest.approx(0.5)


def test_what_is_no_lock_of_several_processes_is_none() -> None:
    assert share(2, {(FUTEX, False): 20, (POLL, False): 10}, {(-1, False): 30}) == 0


def test_four_workers_at_one_lock_would_wait_more() -> None:
    assert share(4, *[{(FUTEX, True): 6, (SLEEP, False): 18}] * 4) == 0
    assert share(4, *[{(FUTEX, True): 18, (SLEEP, False): 6}] * 4) == pytest.approx(0.75)


def test_too_few_looks_say_nothing() -> None:
    assert share(2, {(FUTEX, True): 3, (SLEEP, False): 3}) == 0


def test_workers_that_wait_for_one_lock_are_to_have_a_handle_each(make: Make) -> None:
    file = make(cpus="8", platform=LINUX).steps(100, {("fetch", "blocked"): 6.0}, compute=6.0)
    file.loader(1, fetches=100, wait=600, ready={0: (100, 600)}, num_workers=2, dataset="Rows")
    for pid in (71, 72):
        file.worker(
            1, pid, cpu_share=0.3, seconds=20, states={"S": 20, "R": 5}, waits={(FUTEX, True): 20, (SLEEP, False): 20}
        )
    f = only(file)
    assert (f.id, f.variant, f.params["locked"]) == ("TP102", "locked", 0.5)
