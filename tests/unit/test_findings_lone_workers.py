"""TP102 where the loop waits for one worker while its loader's others have nothing left to do."""

from __future__ import annotations

import json

import pytest
from verdicts import Make, only

SLEEPS, WORKS = 0.04, 0.95


def starved(make: Make, awaited: list[int], *, last: bool = False, share: float = SLEEPS, **meta: str):  # type: ignore[no-untyped-def]
    """400 fetches of which so many waited 80 ms each for each of the workers alone."""
    file = make(**({"cpus": "8", "torch": "2.13.0+cpu"} | meta))
    late = sum(awaited)
    file.steps(400, data_wait=80.0 * late / 400, compute=1.0)
    kind = "iterable" if last else "map"
    ready = {0: (late, 80.0 * late), 6: (400 - late, 0.0)}
    file.loader(1, fetches=400, wait=80.0 * late, ready=ready, num_workers=len(awaited), dataset="Rows", kind=kind)
    for i, n in enumerate(awaited):
        cpu = share if n == max(awaited) else 0.01
        states = {"R" if cpu > 0.5 else "S": 20}
        file.worker(1, 71 + i, cpu_share=cpu, seconds=20, states=states, awaited=n, wait=80.0 * n, last=last)
    return file


@pytest.mark.parametrize(("share", "saves"), [(SLEEPS, 3 / 4), (WORKS, 3 / 4)])
def test_one_worker_is_slower(make: Make, share: float, saves: float) -> None:
    f = only(starved(make, [0, 0, 100, 0], share=share))
    assert f.id == "TP102" and f.title == "one DataLoader worker is slower than the others"
    assert "100 of 400 batches wait for the same one of 4 workers of Rows" in f.why and f"{share:.0%}" in f.why
    assert "in_order=False" in f.fix and "num_workers" not in f.fix and "islice" not in f.fix
    assert f.fix_share == pytest.approx(saves)


def test_computing_workers_are_not_promised_more_cpus_than_there_are(make: Make) -> None:
    f = only(starved(make, [0, 0, 100, 0], share=WORKS, cpus="2"))
    assert f.fix_share == pytest.approx(1 / 2)


def test_one_worker_has_more_to_read(make: Make) -> None:
    f = only(starved(make, [0, 0, 0, 240], last=True))
    assert f.title == "one DataLoader worker has more to read than the others"
    assert "for 240 of 400 batches only one of 4 workers of Rows reads" in f.why and "islice" in f.fix


def test_some_batches_take_long(make: Make) -> None:
    f = only(starved(make, [10, 9, 11, 10]))
    assert f.title == "some batches take the DataLoader's workers longer than others"
    assert f.fix.startswith("DataLoader(..., in_order=False)") and "prefetch_factor=11)" in f.fix
    assert any("40 fetches waited 80.0 ms each for one worker" in e for e in f.evidence)


def test_an_option_that_there_is_not_is_not_advised(make: Make) -> None:
    assert "in_order" not in only(starved(make, [10, 9, 11, 10], torch="2.5.1")).fix
    f = only(starved(make, [10, 9, 11, 10], transformers=json.dumps({"logging_steps": 10})))
    assert f.fix.startswith("TrainingArguments(dataloader_prefetch_factor=11)") and "in_order" not in f.fix


def test_workers_that_all_wait_are_told_as_before(make: Make) -> None:
    file = make(cpus="8").steps(400, data_wait=20.0, compute=1.0)
    file.loader(1, fetches=400, wait=8000, ready={0: (400, 8000)}, num_workers=2, dataset="Rows")
    for pid, n in ((71, 40), (72, 40)):  # a fifth of the wait
        file.worker(1, pid, cpu_share=SLEEPS, seconds=20, states={"S": 20}, awaited=n, wait=20.0 * n)
    f = only(file)
    assert "2 workers of Rows wait themselves" in f.why and "num_workers=" in f.fix
