"""Loops that go on with another number of workers: which are measured, which is found, and what a stretch is."""

from __future__ import annotations

import math
import multiprocessing
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.dataloader import _BaseDataLoaderIter
from trainperf.prove import turns
from trainperf.prove.turns import Policy, Turns, floor, logs_of, paired, search

NOISE = 0.03


def answered(policy: Policy, ms: Callable[[int], float]) -> tuple[dict[str, Any], list[int]]:
    """By a machine on which `ms` is the step of so many workers: what is found, and what was measured."""
    asked = []
    try:
        workers = next(policy)
        while True:
            assert workers is not None
            asked.append(workers)
            workers = policy.send(ms(workers))
    except StopIteration as end:
        return end.value, asked


def found(
    step_ms: Mapping[int, float], *, now: int = 0, seed: int = 0, noise: float = NOISE
) -> tuple[dict[str, Any], list[int]]:
    r = random.Random(seed)
    first = [w for w in step_ms if w != now][:3]
    more = [w for w in step_ms if w > max(first)]
    policy = search(now, first, more, alpha=0.01, seconds=60.0)
    return answered(policy, lambda workers: step_ms[workers] * math.exp(r.gauss(0, noise)))


def test_it_goes_on_as_long_as_more_workers_help() -> None:
    falls = {0: 40.0, 1: 38.0, 2: 20.0, 3: 14.0, 4: 10.0, 6: 10.5, 8: 10.5, 12: 10.5}
    result, asked = found(falls)
    assert result["best"] == 4 and 12 not in asked
    assert 4 <= len(result["pairs"]) <= 6 and all(w in (0, 4) for w in asked[-8:])


@pytest.mark.parametrize("seed", range(20))
def test_one_slow_stretch_does_not_hide_the_best(seed: int) -> None:
    """Sleeping workers, on a machine whose speed changes by a tenth from stretch to stretch."""
    sleeps = {0: 46.0, 1: 46.0, 2: 23.0, 3: 15.5, 4: 11.7, 6: 7.8, 8: 5.9, 12: 5.9, 16: 5.9}
    result, _ = found(sleeps, seed=seed, noise=0.1)
    assert result["best"] in (8, 12, 16)


def test_pairs_are_a_b_b_a_and_none_is_of_the_screening() -> None:
    result, asked = found({0: 40.0, 1: 30.0, 2: 10.0, 3: 10.0})
    pairs = asked[-2 * len(result["pairs"]) :]
    best = result["best"]
    assert pairs[:8] == [0, best, best, 0, 0, best, best, 0]
    assert len(logs_of(result["pairs"])) == len(result["pairs"])


def test_what_the_script_has_is_kept_where_nothing_is_faster() -> None:
    result, asked = found({0: 4.0, 1: 5.0, 2: 6.0, 3: 6.5})
    assert result["best"] == 0 and result["pairs"] == [] and len(asked) <= 10
    result, _ = found({2: 4.0, 1: 5.0, 3: 4.0, 4: 4.0}, now=2, noise=0.0)
    assert result["best"] == 2


@pytest.mark.parametrize("seed", range(20))
def test_settings_that_are_alike_are_not_proven(seed: int) -> None:
    from trainperf.prove.sequential import judge

    result, _ = found({0: 10.0, 1: 10.0, 2: 10.0, 3: 10.0}, seed=seed)
    assert judge(logs_of(result["pairs"])).decision != "won"


def test_pairs_alone_are_taken_until_the_evidence_is_enough() -> None:
    r = random.Random(1)
    policy = paired(1, 4, alpha=0.01, seconds=60.0)
    result, asked = answered(policy, lambda workers: 8.0 / workers * math.exp(r.gauss(0, NOISE)))
    assert set(result) == {"pairs"} and asked[:4] == [1, 4, 4, 1] and 4 <= len(result["pairs"]) <= 6
    assert all(log > 1 for log in logs_of(result["pairs"]))


def test_no_pair_begins_after_the_time() -> None:
    policy = search(0, [1], [2, 3], alpha=0.01, seconds=0.0)
    result, asked = answered(policy, lambda workers: 10.0 / (1 + workers))
    assert result["pairs"] == [] and asked == [0, 1, 1]


class Numbers(Dataset[int]):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        return index


def test_batches_come_from_the_loader_with_so_many_workers_or_from_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs begin anew within a stretch; the loader itself stays as it is, and no worker is left."""
    monkeypatch.setattr(turns, "_SECONDS", 0.0)
    loader = DataLoader(Numbers(), batch_size=2)
    made: list[Any] = []
    original = loader._get_iterator
    monkeypatch.setattr(loader, "_get_iterator", lambda: made.append(original()) or made[-1])

    def policy() -> Policy:
        cached = yield None
        one = yield 1
        return {"ms": [cached, one]}

    taken = Turns(policy(), epoch=10)
    for batch in (-1, -2):
        taken.offer(batch)
    given: list[Any] = []
    while (batch := taken.next(loader, _BaseDataLoaderIter.__next__)) is not None:
        given.append(batch)
    assert given[:3] == [-1, -2, -1]
    numbers = [n for batch in given if not isinstance(batch, int) for n in batch.tolist()]
    assert numbers[:12] == [*range(10), 0, 1] and len(made) >= 2
    assert loader.num_workers == 0 and loader.prefetch_factor is None
    assert {i._num_workers for i in made} == {1}
    assert all(not worker.is_alive() for i in made for worker in i._workers)
    assert len(taken.found["ms"]) == 2 and min(taken.found["ms"]) > 0


@pytest.mark.parametrize("persistent", [True, False])
def test_short_epochs_are_measured_whole_with_what_lies_between(
    monkeypatch: pytest.MonkeyPatch, persistent: bool
) -> None:
    monkeypatch.setattr(turns, "_SECONDS", 0.0)
    monkeypatch.setattr(turns, "_SETTLES_S", 0.0)
    loader = DataLoader(Numbers(), batch_size=2)
    made: list[Any] = []
    original = loader._get_iterator
    monkeypatch.setattr(loader, "_get_iterator", lambda: made.append(original()) or made[-1])

    def policy() -> Policy:
        return {"ms": (yield 1)}

    taken = Turns(policy(), epoch=5, whole=True, persistent=persistent, between_ms=1000.0)
    given = []
    while (batch := taken.next(loader, _BaseDataLoaderIter.__next__)) is not None:
        given.append(batch)
    assert len(given) == 3 * 5  # one before, and as many whole ones as make 8 steps
    assert len(made) == (1 if persistent else 3)
    assert not any(worker.is_alive() for i in made for worker in i._workers)
    assert 1000.0 < taken.found["ms"] < 2000.0


@pytest.mark.parametrize("batch", [[1, 2], lambda: 0], ids=["plain", "unsendable"])
def test_batches_at_hand_come_from_workers_where_they_can(monkeypatch: pytest.MonkeyPatch, batch: Any) -> None:
    monkeypatch.setattr(turns, "_SECONDS", 0.0)
    loader = DataLoader(Numbers(), batch_size=2)
    before = dict(vars(loader))
    taken = Turns(floor())
    taken.offer(batch)
    given = []
    while (one := taken.next(loader, _BaseDataLoaderIter.__next__)) is not None:
        given.append(one)
    assert dict(vars(loader)) == before and multiprocessing.active_children() == []
    assert min(taken.found["floor_ms"], taken.found["own_ms"]) > 0
    if isinstance(batch, list):
        assert taken.found["delivered_ms"] > 0 and given[-turns.FEWEST_STEPS :] == [batch] * turns.FEWEST_STEPS
    else:
        assert taken.found["delivered_ms"] is None


def test_the_floor_is_taken_beside_the_loader_as_it_is() -> None:
    policy = floor()
    assert next(policy) is None
    assert policy.send(3.5) == turns.OWN
    assert policy.send(9.0) == turns.DELIVERED
    with pytest.raises(StopIteration) as end:
        policy.send(4.5)
    assert end.value.value == {"floor_ms": 3.5, "own_ms": 9.0, "delivered_ms": 4.5}
