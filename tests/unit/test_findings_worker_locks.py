"""TP102 where the workers wait for a lock that they share."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from trainperf.findings.worker_locks import lock_share

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
