"""TP102 where the loop waits for one of a loader's workers, or for those whose part of a stream is the largest."""

from __future__ import annotations

import json

import pytest
from runfiles import RunFile
from verdicts import TRAIN, Make, only

SLEEPS, WORKS = 0.04, 0.95
WAIT = 80.0  # ms


def starved(make: Make, awaited: dict[int, int], *, busiest: float = SLEEPS, **options: object) -> RunFile:
    """400 fetches from 4 workers, of which so many waited for each of these alone."""
    meta = {name: options.pop(name) for name in ("cpus", "torch", "transformers") if name in options}
    late = sum(awaited.values())
    file = make(**({"cpus": "8", "torch": "2.13.0+cpu"} | meta))
    file.steps(400, data_wait=WAIT * late / 400, compute=1.0)
    ready = {0: (late, WAIT * late), 6: (400 - late, 0.0)}
    file.loader(1, fetches=400, wait=WAIT * late, ready=ready, num_workers=4, dataset="Rows", **options)
    for worker in range(4):
        share = busiest if worker == max(awaited, key=lambda w: awaited[w], default=0) else 0.01
        file.worker(1, 71 + worker, cpu_share=share, seconds=20, states={"R" if share > 0.5 else "S": 20})
        if worker in awaited:
            file.awaited(1, worker, 4, awaited[worker], WAIT * awaited[worker])
    return file


def test_one_worker_is_slower(make: Make) -> None:
    f = only(starved(make, {2: 100}))
    assert f.id == "TP102" and f.title == "one DataLoader worker is slower than the others"
    assert (f.variant, f.params["worker"], f.params["own"], f.params["of"]) == ("one_worker", 2, 100, 400)
    assert f.fix.startswith("DataLoader(..., in_order=False)") and "every 4th batch" in f.fix
    assert f.fix_share == pytest.approx(1)  # the others take its batches, or it becomes as fast


def test_without_the_option_what_is_slow_in_it_is_still_all_of_the_wait(make: Make) -> None:
    f = only(starved(make, {2: 100}, torch="2.5.1"))
    assert f.params["worker"] == 2 and "in_order" not in f.fix and f.fix_share == pytest.approx(1)


def test_of_a_stream_its_part_is_slow_and_the_others_can_give_more(make: Make) -> None:
    f = only(starved(make, {2: 100}, kind="iterable"))
    assert f.fix.startswith("DataLoader(..., in_order=False)") and "its shard of Rows" in f.fix
    assert f.fix_share == pytest.approx(1)
    old = only(starved(make, {2: 100}, kind="iterable", torch="2.5.1"))
    assert "its shard of Rows" in old.fix and "in_order" not in old.fix


def test_some_batches_take_long(make: Make) -> None:
    f = only(starved(make, {0: 10, 1: 9, 2: 11, 3: 10}))
    assert f.title == "some batches take the DataLoader's workers longer than others"
    assert f.fix.startswith("DataLoader(..., in_order=False)") and "prefetch_factor=11)" in f.fix
    assert any("40 fetches waited 80.0 ms each for one worker" in e for e in f.evidence)
    assert f.fix_share == pytest.approx(1 - (3200 / 4 - 400) / 3200)  # 4 workers share it, while the loop computes


@pytest.mark.parametrize(("now", "advice"), [(4, "prefetch_factor=11"), (16, "prefetch_factor=32"), (32, "")])
def test_a_prefetch_factor_is_only_advised_to_be_raised(make: Make, now: int, advice: str) -> None:
    f = only(starved(make, {0: 10, 1: 9, 2: 11, 3: 10}, prefetch_factor=now))
    assert (advice in f.fix) if advice else ("prefetch_factor" not in f.fix), f.fix


def test_an_option_that_there_is_not_is_not_advised(make: Make) -> None:
    some = {0: 10, 1: 9, 2: 11, 3: 10}
    assert "in_order" not in only(starved(make, some, torch="2.5.1")).fix
    assert "in_order" not in only(starved(make, some, in_order=False)).fix
    f = only(starved(make, some, transformers=json.dumps({"logging_steps": 10})))
    assert f.fix.startswith("TrainingArguments(dataloader_prefetch_factor=11)") and "in_order" not in f.fix


def test_one_long_wait_makes_no_slow_worker(make: Make) -> None:
    file = starved(make, {0: 1, 1: 9})
    file._rows["fetch_awaited"][0]["wait_ns"] = 100 * 10**9
    assert only(file).title.startswith("some batches")


def test_a_few_waits_for_one_worker_are_chance(make: Make) -> None:
    f = only(starved(make, {2: 7}))
    assert f.variant != "one_worker"


def parts(make: Make, waits: dict[int, float], *, busiest: float = SLEEPS, cpus: str = "8") -> RunFile:
    """How many still read -> ms in all that fetches waited then, 10 ms each."""
    whole = sum(waits.values())
    file = make(cpus=cpus).steps(400, data_wait=whole / 400, compute=1.0)
    ready = {0: (400, whole)}
    file.loader(1, fetches=400, wait=whole, ready=ready, num_workers=4, dataset="Rows", kind="iterable")
    for worker in range(4):
        share = busiest if worker == 3 else 0.01
        file.worker(1, 71 + worker, cpu_share=share, seconds=20, states={"R" if share > 0.5 else "S": 20})
    for reading, wait in waits.items():
        if reading < 4:
            file.awaited(1, 3 if reading == 1 else -1, reading, round(wait / 10), wait)
    return file


@pytest.mark.parametrize(
    ("waits", "busiest", "who", "saves"),
    [
        ({4: 1000.0, 1: 3000.0}, SLEEPS, "only 1 of 4 workers", 0.75 * 3300 / 4000),
        ({4: 1000.0, 1: 3000.0}, WORKS, "only 1 of 4 workers", 0.5 * 3300 / 4000),
        ({4: 500.0, 3: 1000.0, 2: 1000.0, 1: 1500.0}, SLEEPS, "only 1 to 3 of 4 workers", 1.875 * 1.1 / 4),
        ({4: 500.0, 3: 1000.0, 2: 1000.0, 1: 1500.0}, WORKS, "only 1 to 3 of 4 workers", 0.75 * 1.1 / 4),
    ],
)
def test_parts_of_a_stream_are_unequal(
    make: Make, waits: dict[int, float], busiest: float, who: str, saves: float
) -> None:
    f = only(parts(make, waits, busiest=busiest, cpus="2"))
    assert f.id == "TP102" and f.variant == "unlike_parts"
    assert who in f.why and "islice" in f.fix and f.fix_share == pytest.approx(saves)


def test_workers_that_all_wait_are_told_as_before(make: Make) -> None:
    f = only(parts(make, {4: 3000.0, 1: 1000.0}))
    assert f.variant == "waiting" and "num_workers=" in f.fix


def test_what_is_saved_is_of_all_loaders(make: Make) -> None:
    file = starved(make, {2: 100})
    file.loader(2, fetches=400, wait=7000, ready={0: (400, 7000)}, num_workers=2, dataset="Others")
    assert only(file).fix_share == pytest.approx(8000 / 15000)


def test_a_loader_that_was_not_waited_for_is_no_error(make: Make) -> None:
    """The loop waits for the second, whose batches had only just been made."""
    file = make(cpus="8").steps(400, data_wait=20.0, compute=1.0)
    file.loader(1, fetches=0, wait=0, num_workers=2, dataset="Val")
    file.loader(2, fetches=400, wait=8000, ready={1: (400, 8000)}, num_workers=2, dataset="Rows")
    for pid in (71, 72):
        file.worker(2, pid, cpu_share=WORKS, seconds=20, states={"R": 20})
    f = only(file)
    assert f.id == "TP102" and "2 workers of Rows compute" in f.why


@pytest.mark.parametrize(("cpus", "advice"), [("8", "num_workers=4"), ("2", "samples of Rows cheaper")])
def test_workers_that_compute_for_a_part_get_no_more_than_there_are_cpus(make: Make, cpus: str, advice: str) -> None:
    file = make(cpus=cpus).steps(100, data_wait=8.0, compute=8.0)
    file.loader(1, fetches=100, wait=800, ready={0: (100, 800)}, num_workers=2, dataset="Rows")
    for pid in (71, 72):
        file.worker(1, pid, cpu_share=0.5, seconds=5, states={"R": 3, "S": 3})
    file.host(8, process_cpus=0.6, other_cpus=1.0, idle_cpus=0.4)
    f = only(file)
    assert "compute for 50% of the time" in f.why and advice in f.fix, f


@pytest.mark.parametrize(("others", "says"), [(0.0, "whenever a CPU is free"), (1.5, "other work occupies the CPUs")])
def test_workers_that_share_few_cpus_with_the_training(make: Make, others: float, says: str) -> None:
    file = make(cpus="2").steps(400, data_wait=20.0, compute=1.0)
    file.loader(1, fetches=400, wait=8000, ready={0: (400, 8000)}, num_workers=3, dataset="Rows")
    for pid in (71, 72, 73):
        file.worker(1, pid, cpu_share=0.55, seconds=8, states={"R": 9, "S": 1})
    file.host(8, process_cpus=0.2, other_cpus=1.7 + others, idle_cpus=0.0)
    f = only(file)
    assert says in f.why and ("stop other processes" in f.fix) == bool(others)


def test_a_collate_fn_is_named_where_batches_are_made(make: Make) -> None:
    file = make(cpus="2").steps(400, data_wait=20.0, compute=1.0)
    own = {"collate_fn": "__main__.pad", "collate_at": f"{TRAIN}:41"}
    file.loader(1, fetches=400, wait=8000, ready={0: (400, 8000)}, num_workers=2, dataset="Rows", **own)
    for pid in (71, 72):
        file.worker(1, pid, cpu_share=WORKS, seconds=20, states={"R": 20})
    assert "samples of Rows and pad (train.py:41) cheaper" in only(file).fix
