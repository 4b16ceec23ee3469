"""TP104: workers that start at each epoch, once, or not again, on runs made by hand."""

from __future__ import annotations

import pytest
from runfiles import RunFile
from verdicts import Make, only, said


def test_worker_startup_counts_its_steps_and_never_says_typical(make: Make) -> None:
    file = make()
    for step in range(24):
        start = step % 12 == 0
        file.step(data_wait=900.0 if start else 0.1, compute=4.0)
        if start:
            file.span("loader_start", 300, step=step, object=1)
            file.span("first_fetch", 600, step=step, object=1)
    file.loader(1, fetches=22, wait=2.2, ready={2: (22, 2.2)}, first=(2, 1200), num_workers=2, persistent_workers=False)
    found = said(file)
    f = only(file)
    assert f.id == "TP104" and "persistent_workers=True" in f.fix and "more workers" in f.will_not_help
    assert "2 of 24 steps" in found.verdict.text and "900 ms each" in found.verdict.text
    assert "typical" not in found.verdict.text


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_do_not_persist_beyond_their_loader(make: Make, persistent: bool) -> None:
    """A DataLoader is made in each epoch."""
    file = make()
    for step in range(24):
        start = step % 12 == 0
        file.step(data_wait=900.0 if start else 0.1, compute=4.0)
        if start:
            id = file.loader(
                1 + step, num_workers=2, fetches=11, wait=1, ready={2: (11, 1)}, persistent_workers=persistent
            )
            file.span("loader_start", 300, step=step, object=id).span("first_fetch", 600, step=step, object=id)
    f = only(file)
    assert f.id == "TP104" and f.fix.startswith("# make the loader once") and "each new DataLoader starts" in f.why
    assert any("each time of a new loader" in e for e in f.evidence)


def test_stopping_the_workers_belongs_to_starting_them(make: Make) -> None:
    file = make()
    for step in range(24):
        file.step(data_wait={0: 500.0, 11: 300.0, 12: 500.0, 23: 300.0}.get(step, 0.1), compute=4.0)
        if step in (0, 12):
            file.span("first_fetch", 500, step=step, object=1)
    file.loader(1, fetches=22, wait=2, ready={2: (22, 2)}, first=(2, 1000), num_workers=1)
    f = only(file)
    assert (
        f.id == "TP104"
        and f.cost_ns == pytest.approx(1600e6, rel=0.01)
        and any("to stop them" in e for e in f.evidence)
    )


@pytest.mark.parametrize("persistent", [True, False])
def test_one_start_up_is_no_warning(make: Make, persistent: bool) -> None:
    file = make()
    file.step(data_wait=900.0, compute=4.0, flags=16)
    file.steps(40, compute=4.0, data_wait=0.1)
    file.span("first_fetch", 900, step=0, object=1)
    file.loader(1, fetches=40, wait=4, ready={2: (40, 4)}, first=(1, 900), num_workers=2, persistent_workers=persistent)
    (f,) = said(file).findings
    assert (f.id, f.severity, f.fix) == ("TP104", "info", "# nothing, in a longer run")
    assert f.title == "worker start-up took 900 ms of this short run (longer runs pay it once)"
    assert "the first batch came after 900 ms" in f.why


def persistent_epochs(file: RunFile, first: float, later: float) -> RunFile:
    """Ten short epochs of a loader with persistent workers: what their first batches took."""
    for step in range(120):
        wait = later if step else first
        file.step(data_wait=wait if step % 12 == 0 else 0.1, compute=4.0)
        if step % 12 == 0:
            file.span("loader_start", wait / 10, step=step, object=1)
            file.span("first_fetch", wait * 9 / 10, step=step, object=1)
    file.loader(1, fetches=110, wait=11, ready={2: (110, 11)}, num_workers=2, persistent_workers=True)
    return file


def test_persistent_workers_begin_each_epoch_with_an_empty_queue(make: Make) -> None:
    file = persistent_epochs(make(), first=160.0, later=36.0)
    for pid in (71, 72):  # the same in all epochs
        file.worker(1, pid, cpu_share=0.1, seconds=2, states={"S": 2})
    found = said(file)
    (f,) = found.findings
    assert (f.id, f.slug, f.severity) == ("TP104", "first-batches", "info")
    assert f.cost_ns == pytest.approx(9 * 36e6, rel=0.01) and f.steps_affected == 9  # without the one start
    told = " ".join((found.verdict.text, f.title, f.why, f.fix, *f.evidence))
    assert " start " not in told and "starts 2" not in told and "start-up" not in told, told
    assert "prefetch queue starts empty" in f.title and "a larger prefetch_factor" in f.will_not_help


def test_persistent_workers_that_are_seen_to_start_again_are_told_so(make: Make) -> None:
    file = persistent_epochs(make(), first=160.0, later=160.0)
    for pid in range(71, 91):
        file.worker(1, pid, cpu_share=0.1, seconds=2, states={"S": 1})
    f = only(file)
    assert (f.slug, f.steps_affected) == ("worker-startup", 10) and "starts 2 workers: 10 times" in f.why


def test_one_start_of_persistent_workers_is_not_told_as_one_at_each_epoch(make: Make) -> None:
    (f,) = said(persistent_epochs(make(), first=6000.0, later=20.0)).findings
    assert (f.slug, f.severity) == ("worker-startup", "info") and f.title.startswith("worker start-up took 6.0 s of")
    assert f.cost_ns == pytest.approx(6e9, rel=0.01)


@pytest.mark.parametrize("slow", [0.8, 1.4])
def test_a_start_that_is_most_of_a_short_run_is_said_first(make: Make, slow: float) -> None:
    """Whether the smaller wait is above what is warned of or not."""
    file = make()
    file.step(data_wait=5000.0, compute=5.0, flags=16)
    file.steps(98, data_wait=10.0 * slow, compute=20.0)
    file.step(data_wait=1500.0, compute=5.0)
    file.span("first_fetch", 5000, step=0, object=1)
    wait = 980 * slow
    file.loader(1, fetches=98, wait=wait, ready={0: (98, wait)}, first=(1, 5000), num_workers=2)
    found = said(file)
    assert [f.id for f in found.findings] == (["TP102", "TP104"] if slow > 1 else ["TP104"])
    told = "worker start-up and stop took 6.5 s of this short run (longer runs pay it once): "
    assert found.verdict.text.startswith(told)
    assert ("; beside that workers-too-slow, " in found.verdict.text) == (slow > 1)
    with file.open() as run:
        (row,) = (line for line in str(run.summary()).splitlines() if "data_wait  " in line)
    assert row.endswith("<- TP104, TP102" if slow > 1 else "<- TP104")
