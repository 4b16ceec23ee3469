"""TP104: workers that start at each epoch, once, or not again, and loaders that begin again for each batch, on runs
made by hand."""

from __future__ import annotations

from typing import Any

import pytest
from runfiles import RunFile
from verdicts import TRAIN, Make, loud, only, said


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


def test_waits_for_a_cpu_between_epochs_belong_to_it(make: Make) -> None:
    """Of 880 ms of fetching in an epoch 800 are between epochs: 500 in iter(loader) and the first fetch, 300 at the
    end. Half of all of it waits for a CPU."""
    file = make()
    for step in range(48):
        wait = {0: 500.0, 11: 300.0}.get(step % 12, 8.0)
        file.step({("fetch", "blocked"): wait / 2, ("fetch", "descheduled"): wait / 2}, compute=10.0)
        if step % 12 == 0:
            file.span("loader_start", 300, step=step, object=1).span("first_fetch", 200, step=step, object=1)
    file.loader(1, fetches=44, wait=320, ready={2: (44, 320)}, first=(4, 800), num_workers=2)
    f = next(f for f in said(file).findings if f.id == "TP104")
    assert f.severity == "critical" and f.cost_ns == pytest.approx(4 * 800e6) and "800 ms each" in f.why
    assert any(e.startswith("300 ms of it to stop them") for e in f.evidence)


def test_a_start_that_two_steps_feel_is_one(make: Make) -> None:
    """Lightning calls iter(loader) in the last step of an epoch, and fetches in the next."""
    file = make()
    for epoch in range(3):
        for step in range(12):
            file.step(data_wait={0: 600.0, 11: 300.0}.get(step, 0.1), compute=4.0)
            if step == 0:
                file.span("first_fetch", 600, step=12 * epoch, object=1)
            elif step == 11:
                file.span("loader_start", 300, step=12 * epoch + 11, object=1)
    file.loader(1, fetches=33, wait=3.3, ready={2: (33, 3.3)}, first=(3, 1800), num_workers=2)
    f = only(file)
    assert f.id == "TP104" and f.steps_affected == 6 and "4 times" in f.why  # of the last no batch was trained on
    assert any(e.startswith("6 of 36 steps wait for 2 workers to start: 4 starts") for e in f.evidence)


@pytest.mark.parametrize("persistent", [False, True])
def test_one_start_in_two_steps_is_no_start_at_each_epoch(make: Make, persistent: bool) -> None:
    file = make()
    for step in range(400):
        file.step(data_wait={5: 300.0, 6: 600.0}.get(step, 0.1), compute=4.0)
    file.span("loader_start", 300, step=5, object=1).span("first_fetch", 600, step=6, object=1)
    file.loader(1, fetches=399, wait=39.9, ready={2: (399, 39.9)}, num_workers=2, persistent_workers=persistent)
    f = next(f for f in said(file).findings if f.id == "TP104")
    assert (f.severity, f.steps_affected) == ("info", 2) and "start-up took" in f.title


def test_two_iterators_of_one_loader_in_one_epoch_are_no_start_at_each(make: Make) -> None:
    """zip(loader, loader)"""
    file = make()
    for step in range(400):
        file.step(data_wait=900.0 if step == 0 else 0.1, compute=4.0)
    for kind in ("loader_start", "loader_start", "first_fetch", "first_fetch"):
        file.span(kind, 225, step=0, object=1)
    file.loader(1, fetches=798, wait=39.9, ready={2: (798, 39.9)}, num_workers=2)
    f = next(f for f in said(file).findings if f.id == "TP104")
    assert (f.severity, f.steps_affected) == ("info", 1) and "start-up took" in f.title


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
    assert f.variant == "anew"


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
    assert (f.id, f.severity, f.fix) == ("TP104", "info", "# no action needed: one-time cost")
    assert f.title == "worker start-up took 900 ms of this short run (longer runs pay it once)"
    assert f.params["first"] == 900e6


def started_by(file: RunFile, method: str, first: float, later: float, epochs: int = 10) -> RunFile:
    for step in range(12 * epochs):
        wait = later if step else first
        file.step(data_wait=wait if step % 12 == 0 else 0.1, compute=10.0)
        if step % 12 == 0:
            file.span("loader_start", wait / 4, step=step, object=1)
            file.span("first_fetch", wait * 3 / 4, step=step, object=1)
    ready, starts = 11 * epochs, first + later * (epochs - 1)
    file.loader(
        1,
        fetches=ready,
        wait=ready / 10,
        ready={2: (ready, ready / 10)},
        first=(epochs, starts),
        num_workers=2,
        persistent_workers=False,
        multiprocessing_context=method,
    )
    return file


def test_a_fork_server_imports_once_and_that_start_is_not_saved(make: Make) -> None:
    """CPython 3.14's default: of 1,700 + 9 * 120 ms persistent workers save the 9 * 120."""
    f = only(started_by(make(), "forkserver", first=1700.0, later=120.0))
    assert f.id == "TP104" and f.variant == "each_epoch"
    assert f.cost_ns * f.fix_share == pytest.approx(9 * 120e6, rel=0.01)
    assert "the first took 1.7 s, as the fork server imports the program then" in f.evidence
    assert "preload" not in f.fix


def test_quick_starts_after_that_of_a_fork_server_are_one_start_up(make: Make) -> None:
    (f,) = said(started_by(make(), "forkserver", first=1700.0, later=8.0)).findings
    assert (f.id, f.severity, f.fix) == ("TP104", "info", "# no action needed: one-time cost")
    assert f.params["first"] == pytest.approx(1.7e9)


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_workers_that_import_at_each_start_are_told_of_the_fork_server(make: Make, method: str) -> None:
    """As in a notebook, or with `python -m`: there the fork server has nothing to import by itself."""
    f = only(started_by(make(), method, first=1700.0, later=1600.0))
    calls = f.fix.splitlines()
    assert calls[0].startswith("DataLoader(..., persistent_workers=True")
    preload = 'multiprocessing.set_forkserver_preload(["__main__", "torch"])'
    assert (preload in calls) == (method != "fork")
    assert ('DataLoader(..., multiprocessing_context="forkserver")' in calls) == (method == "spawn")
    assert not any("fork server imports" in e for e in f.evidence)


def persistent_epochs(file: RunFile, first: float, later: float, kind: str = "map") -> RunFile:
    """Ten short epochs of a loader with persistent workers: what their first batches took."""
    for step in range(120):
        wait = later if step else first
        file.step(data_wait=wait if step % 12 == 0 else 0.1, compute=4.0)
        if step % 12 == 0:
            file.span("loader_start", wait / 10, step=step, object=1)
            file.span("first_fetch", wait * 9 / 10, step=step, object=1)
    file.loader(1, fetches=110, wait=11, ready={2: (110, 11)}, num_workers=2, persistent_workers=True, kind=kind)
    return file


def test_one_start_in_few_steps_tells_nothing(make: Make) -> None:
    file = make()
    file.step(data_wait=200.0, compute=4.0)
    file.steps(12, compute=4.0)
    file.span("loader_start", 20, step=0, object=1).span("first_fetch", 180, step=0, object=1)
    file.loader(1, fetches=12, wait=1, ready={2: (12, 1)}, num_workers=2)
    assert "TP104" not in [f.id for f in said(file).findings]
    assert [a.slug for a in said(file).abstained if a.id == "TP104"] == ["worker-startup"]


def test_an_epoch_of_a_stream_has_no_sampler(make: Make) -> None:
    file = persistent_epochs(make(), first=160.0, later=36.0, kind="iterable")
    for pid in (71, 72):
        file.worker(1, pid, cpu_share=0.1, seconds=2, states={"S": 2})
    (f,) = said(file).findings
    assert (f.slug, f.variant, f.params["refills"]) == ("first-batches", "empty_queue_of_stream", 9)


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
    assert f.variant.startswith("empty_queue") and "a larger prefetch_factor" in f.will_not_help


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
    assert ("; in addition, workers-too-slow, " in found.verdict.text) == (slow > 1)
    with file.open() as run:
        (row,) = (line for line in str(run.summary()).splitlines() if "data_wait  " in line)
    assert row.endswith("<- TP104, TP102" if slow > 1 else "<- TP104")


DATA = "/x/site-packages/torch/utils/data"
LINE = f"{TRAIN}:12 <module>"
NEXT = (
    f"{DATA}/dataloader.py:715 _BaseDataLoaderIter._next_index",
    f"{DATA}/dataloader.py:725 _BaseDataLoaderIter.__next__",
)
DRAWS = f"{DATA}/sampler.py:182 RandomSampler.__iter__"
STOPS = (
    "/usr/lib/python3.11/selectors.py:415 _PollLikeSelector.select",
    "/usr/lib/python3.11/multiprocessing/connection.py:947 wait",
    "/usr/lib/python3.11/multiprocessing/popen_fork.py:40 Popen.wait",
    f"{DATA}/dataloader.py:1654 _MultiProcessingDataLoaderIter._shutdown_workers",
    f"{DATA}/dataloader.py:1704 _MultiProcessingDataLoaderIter.__del__",
)
POLL = 7


def drawn_each_batch(file: RunFile, *, starts: int, ends: int = 0, own: float = 0.0) -> RunFile:
    """60 steps: drawing takes 600 ms in all, at each start, and a fetch beside it `own` ms of the data set's; 2 ms of
    the next phase are the iterator's that went."""
    each = 600 / starts + own
    for step in range(60):
        began = step % (60 // starts) == 0
        file.step({("fetch", "native"): each if began else own, ("forward", "python"): 2.0}, compute=4.0)
        if began:
            file.span("loader_start", 0.01, step=step, object=1).span("first_fetch", each, step=step, object=1)
    file.loader(
        1,
        fetches=60 - starts,
        wait=(60 - starts) * own,
        first=(starts, starts * each),
        exhausted=ends,
        sampler="RandomSampler",
        batch_sampler="BatchSampler",
        dataset_length=3_000_000,
    )
    file.detail("sample", 600, phase="fetch", state="native", stack=file.stack(DRAWS, *NEXT, LINE))
    if own:
        reads = file.stack(f"{TRAIN}:5 Slow.__getitem__", *NEXT[1:], LINE)
        file.detail("sample", 60 * own, phase="fetch", state="native", stack=reads)
    return file.detail("sample", 120, phase="forward", state="python", stack=file.stack(DRAWS, LINE))


@pytest.mark.parametrize("starts", [60, 30])
def test_a_loader_that_begins_again_for_each_batch_is_told_so(make: Make, starts: int) -> None:
    file = drawn_each_batch(make(), starts=starts)
    f = only(file)
    which = "each" if starts == 60 else "every second"
    assert (f.id, f.slug, f.severity) == ("TP104", "loader-restarts", "critical")
    assert f.title == f"iter(loader) is called for {which} batch ({starts} times in 60 steps)"
    assert f.where == "train.py:12" and "RandomSampler of 3,000,000" in f.why
    assert f.fix.startswith("batches = iter(loader)  # once") and "at StopIteration" in f.fix
    assert "persistent_workers" in f.will_not_help
    assert f.cost_ms_per_step == pytest.approx(12.0, rel=0.01)  # with the indices that are given back
    assert any(f"{120 / starts} ms of it to free the indices" in e for e in f.evidence)


def test_a_frameworks_loop_is_not_the_users_to_change(make: Make) -> None:
    """As Lightning's with overfit_batches=1."""
    file = drawn_each_batch(make(), starts=60).meta(framework="lightning.pytorch 2.6.0")
    assert "loader-restarts" not in [f.slug for f in said(file).findings]


@pytest.mark.parametrize(("starts", "ends"), [(12, 0), (60, 60), (30, 29), (6, 0)])
def test_one_that_begins_with_an_epoch_is_told_as_before(make: Make, starts: int, ends: int) -> None:
    """Epochs of five batches, or of one or two, to their ends."""
    f = only(drawn_each_batch(make(), starts=starts, ends=ends))
    assert (f.id, f.title) == ("TP106", "the loop waits for its sampler")


def test_what_the_data_set_takes_is_not_what_beginning_costs(make: Make) -> None:
    found = said(drawn_each_batch(make(), starts=60, own=20.0)).findings
    assert [(f.slug, f.where) for f in found] == [("data-starved", "train.py:5"), ("loader-restarts", "train.py:12")]
    assert [f.cost_ms_per_step for f in found] == pytest.approx([20.0, 12.0], rel=0.01)
    assert found[0].fix.startswith("# call iter(loader) once") and "num_workers=" in found[0].fix


def test_a_validation_batch_now_and_then_is_no_restart(make: Make) -> None:
    file = make()
    for step in range(200):
        file.step({("fetch", "python"): 10.0 if step % 10 == 0 else 0.1}, compute=4.0)
        if step % 10 == 0:
            file.span("first_fetch", 10, step=step, object=2)
    file.loader(1, fetches=199, wait=20, first=(1, 1), sampler="RandomSampler")
    file.loader(2, first=(20, 200), sampler="RandomSampler")
    file.detail("sample", 200, phase="fetch", stack=file.stack(DRAWS, *NEXT, LINE))
    assert "loader-restarts" not in [f.slug for f in said(file).findings]


def started_each_batch(file: RunFile, **loader: Any) -> RunFile:
    """60 steps: workers start and make a batch in 20 ms, and stop in 8 ms after it."""
    for step in range(60):
        file.step({("fetch", "blocked"): 20.0, ("forward", "blocked"): 8.0}, compute=4.0)
        file.span("loader_start", 12, step=step, object=1).span("first_fetch", 8, step=step, object=1)
    file.loader(1, first=(60, 480), **({"num_workers": 1, "sampler": "RandomSampler"} | loader))
    starts = (
        f"{DATA}/dataloader.py:1176 _MultiProcessingDataLoaderIter.__init__",
        f"{DATA}/dataloader.py:505 __iter__",
    )
    file.detail("sample", 700, phase="fetch", state="blocked", stack=file.stack(*starts, LINE), code=POLL)
    return file.detail("sample", 480, phase="forward", state="blocked", stack=file.stack(*STOPS, LINE), code=POLL)


def test_workers_that_start_and_stop_for_each_batch_are_told_once(make: Make) -> None:
    file = started_each_batch(make())
    (f,) = said(file).findings
    assert (f.slug, f.severity, f.where) == ("loader-restarts", "critical", "train.py:12")
    assert f.cost_ms_per_step == pytest.approx(28.0) and any(
        "8.0 ms of it to stop the workers" in e for e in f.evidence
    )
    assert f.title.endswith("for each batch (60 times in 60 steps)") and f.fix.startswith("batches = iter(loader)")
    assert "persistent_workers alone" in f.will_not_help and not any("same batch" in e for e in f.evidence)


def test_nor_do_a_validations_workers_hide_what_stops_for_each_batch(make: Make) -> None:
    file = started_each_batch(make())
    file.loader(2, validation=(4, 100), num_workers=2)
    assert [f.slug for f in said(file).findings] == ["loader-restarts"]


def test_a_loader_that_does_not_shuffle_begins_with_the_same_batch(make: Make) -> None:
    f = only(started_each_batch(make(), sampler="SequentialSampler"))
    assert any("with the same batch" in e for e in f.evidence)


def test_a_loader_made_anew_for_each_batch_is_told_to_be_made_once(make: Make) -> None:
    file = make()
    for step in range(60):
        id = file.loader(1 + step, first=(1, 8), num_workers=1)
        file.step({("fetch", "blocked"): 20.0}, compute=4.0)
        file.span("loader_start", 12, step=step, object=id).span("first_fetch", 8, step=step, object=id)
    f = only(file)
    assert f.slug == "loader-restarts" and f.fix.startswith("# make the loader once"), f


def test_persistent_workers_do_not_help_who_begins_again_for_each_batch(make: Make) -> None:
    file = make()
    for step in range(60):
        file.step(data_wait=3.0, compute=2.0)
        file.span("loader_start", 1, step=step, object=1).span("first_fetch", 2, step=step, object=1)
    file.loader(1, first=(60, 120), num_workers=1, persistent_workers=True)
    f = only(file)
    assert (f.slug, f.severity) == ("loader-restarts", "critical") and f.variant == "each_batch_kept"


def left_early(file: RunFile, **other: Any) -> RunFile:
    """Four epochs that the loop leaves before their end, so that workers stop outside of a fetch."""
    for step in range(48):
        first = step % 12 == 0
        file.step(
            {("fetch", "blocked"): 200.0 if first else 0.1, ("other", "blocked"): 90.0 if first else 0.0}, compute=4
        )
        if first:
            file.span("loader_start", 50, step=step, object=1).span("first_fetch", 150, step=step, object=1)
    file.loader(1, fetches=44, wait=4.4, ready={2: (44, 4.4)}, first=(4, 600), num_workers=2)
    if other:
        file.loader(2, validation=(4, 100), **other)
    return file.detail("sample", 360, phase="other", state="blocked", stack=file.stack(*STOPS, LINE), code=POLL)


def test_workers_that_stop_outside_of_a_fetch_belong_to_their_start(make: Make) -> None:
    f = only(left_early(make()))
    assert (f.slug, f.steps_affected) == ("worker-startup", 4) and "persistent_workers=True" in f.fix
    assert f.cost_ns == pytest.approx(4 * 290e6, rel=0.01) and any(
        "90.0 ms of it to stop them" in e for e in f.evidence
    )


def test_workers_that_stop_are_no_pipe_to_ask_sooner(make: Make) -> None:
    """A validation's may be those that stop: they are none of what the training's cost."""
    file = left_early(make(), num_workers=2)
    assert loud(file) == ["worker-startup", "blocked"]
    assert said(file).findings[1].variant == "workers"
