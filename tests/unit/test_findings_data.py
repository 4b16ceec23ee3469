"""Rules about data, on runs made by hand: what they say, and when they must be silent."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from trainperf.report import console
from verdicts import TRAIN, Make, loud, only, said


def test_data_starved_names_the_users_line_and_says_that_it_computes(make: Make) -> None:
    file = make()
    at = file.stack(f"{TRAIN}:41 Slow.__getitem__", "/x/site-packages/torch/utils/data/_utils/fetch.py:54 fetch")
    file.steps(100, {("fetch", "python"): 5.0, ("fetch", "native"): 1.0}, compute=6.0)
    file.loader(1, fetches=100, wait=600, dataset="Slow", dataset_at=f"{TRAIN}:39")
    file.detail("sample", 590, phase="fetch", state="python", stack=at)
    f = only(file)
    assert (f.id, f.severity, f.where) == ("TP101", "critical", "train.py:41")
    assert f.share == pytest.approx(0.5) and f.cost_ms_per_step == pytest.approx(6.0)
    assert "Slow.__getitem__ (train.py:41) computes" in f.why
    assert "num_workers=2" in f.fix and "pin_memory" in f.will_not_help
    assert f.confidence == "high"


def test_a_look_that_shows_what_was_before_the_fetch_is_not_its_place(make: Make) -> None:
    """Of a notebook's 80 steps one sample of two said `loss.backward()`."""
    fetch = ("/x/torch/utils/data/_utils/fetch.py:54 fetch", "/x/torch/utils/data/dataloader.py:790 _next_data")
    file = make().steps(80, {("fetch", "python"): 1.3}, compute=0.2)
    file.loader(1, fetches=80, wait=104, dataset="Slow", dataset_at=f"{TRAIN}:39")
    file.detail("sample", 60, phase="fetch", state="python", stack=file.stack(f"{TRAIN}:50 <module>"))
    file.detail("sample", 40, phase="fetch", state="python", stack=file.stack(f"{TRAIN}:41 Slow.__getitem__", *fetch))
    f = only(file)
    assert f.id == "TP101" and f.where == "train.py:41" and "Slow.__getitem__ (train.py:41) computes" in f.why


def test_nor_is_one_where_there_is_no_other(make: Make) -> None:
    file = make().steps(80, {("fetch", "python"): 1.3}, compute=0.2)
    file.loader(1, fetches=80, wait=104, dataset="Slow", dataset_at=f"{TRAIN}:39")
    backward = ("/x/site-packages/torch/_tensor.py:630 Tensor.backward", f"{TRAIN}:50 <module>")
    file.detail("sample", 100, phase="fetch", state="python", stack=file.stack(*backward))
    f = only(file)
    assert f.id == "TP101" and f.where == "train.py:39" and f.why.startswith("Slow computes"), f


def test_a_trainer_that_makes_its_own_loader_is_told_where(make: Make) -> None:
    for own in ("", "Mine.get_train_dataloader"):
        file = make(transformers=json.dumps({"logging_steps": 10, "own_loader": own}))
        file.steps(100, {("fetch", "blocked"): 6.0}, compute=6.0).loader(1, fetches=100, wait=600, dataset="Rows")
        file.detail("sample", 600, phase="fetch", state="blocked", stack=file.stack(f"{TRAIN}:5 Rows.__getitem__"))
        fix = only(file).fix
        assert fix.startswith("DataLoader(" if own else "TrainingArguments(") and (f"# in {own}" in fix) == bool(own)


@pytest.mark.parametrize(
    ("count", "first", "first_ms", "share"), [(99, 1, 6, 0.99), (150, 50, 150, 0.75), (190, 10, 300, 0.5)]
)
def test_an_iterators_first_batch_is_not_made_ahead(
    make: Make, count: int, first: int, first_ms: float, share: float
) -> None:
    """Nor is saved what it takes to have one from a worker."""
    file = make(cpus="4", framework="lightning.pytorch 2.6.0").steps(100, {("fetch", "blocked"): 6.0}, compute=6.0)
    file.loader(1, fetches=count, wait=600 - first_ms, first=(first, first_ms), dataset="Rows")
    file.detail("sample", 600, phase="fetch", state="blocked", stack=file.stack(f"{TRAIN}:5 Rows.__getitem__"))
    f = next(f for f in said(file).findings if f.id == "TP101")
    pays = count * 1.2 <= share * 600 / 2
    assert ("num_workers=" in f.fix) == pays and f.fix_share == pytest.approx(share - count * 1.2 / 600 if pays else 1)


@pytest.mark.parametrize(("mechanism", "cpus", "saves"), [("blocked", "2", 6 - 1.2), ("python", "2", 8 - 4.6)])
def test_workers_that_compute_share_the_cpus_with_training(make: Make, mechanism: str, cpus: str, saves: float) -> None:
    file = make(cpus=cpus).steps(100, {("fetch", mechanism): 6.0}, compute=2.0)
    file.loader(1, fetches=100, wait=600, dataset="Rows")
    at = file.stack(f"{TRAIN}:5 Rows.__getitem__")
    file.detail("sample", 600, phase="fetch", state=mechanism, stack=at, count=60)
    f = only(file)
    assert "num_workers=" in f.fix and f.fix_share == pytest.approx(saves / 6)


@pytest.mark.parametrize(("ms", "few"), [(60.0, True), (2.0, False)])
def test_of_few_long_batches_among_quick_ones_the_samples_are_to_be_seen(make: Make, ms: float, few: bool) -> None:
    """Measured: 15 batches of 60 ms among 1,500 were `497 of 1,500 steps, 1.9 ms each`, to be indexed at once."""
    file = make(cpus="2")
    for _ in range(10):
        file.steps(99, {("fetch", "python"): 0.4}, compute=1.0).steps(1, {("fetch", "blocked"): ms}, compute=1.0)
    file.loader(1, fetches=1000, wait=396 + 10 * ms, dataset="Rows")
    stack = file.stack(f"{TRAIN}:5 Rows.__getitem__")
    file.detail("sample", 396, phase="fetch", state="python", stack=stack, count=60)
    file.detail("sample", 10 * ms, phase="fetch", state="blocked", code=230, stack=stack, count=60)
    f = next(f for f in said(file).findings if f.id == "TP101")
    assert f.fix.startswith("# 10 batches take long") == few and (f.steps_affected == 10) == few
    assert f.fix_share == (pytest.approx(600 / 996) if few else 1)


@pytest.mark.parametrize(("ms", "workers"), [(0.8, False), (1.6, False), (4.0, True)])
def test_who_waits_for_a_lock_is_to_hold_it_for_less_also_for_short(make: Make, ms: float, workers: bool) -> None:
    """To index a batch at once is no mend of a lock."""
    file = make(cpus="8").steps(200, {("fetch", "blocked"): ms}, compute=ms)
    file.loader(1, fetches=200, wait=200 * ms, dataset="Rows")
    at = file.stack(f"{TRAIN}:5 Rows.__getitem__")
    file.detail("sample", 200 * ms, phase="fetch", state="blocked", code=202, stack=at, count=60)
    f = next(f for f in said(file).findings if f.id == "TP101")
    assert f.fix.startswith("# hold the lock for less") and ("num_workers=" in f.fix) == workers


def test_an_iterable_of_quick_batches_is_to_be_made_cheaper(make: Make) -> None:
    file = make(cpus="4").steps(200, {("fetch", "python"): 1.1}, compute=0.9)
    file.loader(1, fetches=200, wait=220, dataset="Rows", is_dataloader=False)
    file.detail("sample", 220, phase="fetch", state="python", stack=file.stack(f"{TRAIN}:5 Rows.__next__"), count=60)
    f = only(file)
    assert f.fix.startswith("# make a batch of Rows cheaper") and f.fix_share == 1


def test_of_several_loaders_the_costliest_is_to_have_workers(make: Make) -> None:
    file = make(cpus="8").steps(100, {("fetch", "python"): 7.0}, compute=3.0)
    file.loader(1, fetches=100, wait=600, dataset="Unlabelled")
    file.loader(2, fetches=100, wait=100, dataset="Labelled")
    at = file.stack("/app/lib/spin.py:9 spin", f"{TRAIN}:5 Unlabelled.__getitem__")
    file.detail("sample", 700, phase="fetch", state="python", stack=at, count=70)
    f = only(file)
    assert (
        f.will_not_help.startswith("pin_memory")
        and "persistent_workers=True)  # of Unlabelled" in f.fix
        and "called by Unlabelled.__getitem__" in f.why
    )
    assert f.fix_share == pytest.approx((6 - 1.2) / 7)


@pytest.mark.parametrize("collate", [True, False])
def test_batches_that_a_worker_would_hardly_pass_on_faster_are_to_be_made_cheaper(make: Make, collate: bool) -> None:
    """Measured: of 2 ms a batch, by a collate_fn, two workers made the step longer."""
    file = make(cpus="2").steps(100, {("fetch", "python"): 8.0}, compute=8.0)
    file.loader(1, fetches=400, wait=800, dataset="Rows")
    # The second: a decorated one, of CPython 3.12 on, where the comprehension has no frame of its own.
    called = (f"{TRAIN}:11 parse", f"{TRAIN}:9 pad") if collate else (f"{TRAIN}:5 Rows.__getitem__", f"{TRAIN}:2 timed")
    fetch = "/x/site-packages/torch/utils/data/_utils/fetch.py:55 _MapDatasetFetcher.fetch"
    stack = file.stack(*called, fetch, f"{TRAIN}:16 <module>")
    file.detail("sample", 800, phase="fetch", state="python", stack=stack, count=80)
    f = only(file)
    assert (
        f.severity == "critical"
        and "num_workers=" not in f.fix
        and f.will_not_help.endswith("1.9 ms, much of this wait")
    )
    assert ("make pad (train.py:9) cheaper" in f.fix) == collate and ("__getitems__" in f.fix) != collate


@pytest.mark.parametrize("share", [0.7, 0.3])
def test_a_callbacks_own_loader_is_not_reached_by_the_trainers_arguments(make: Make, share: float) -> None:
    file = make(transformers='{"logging_steps": 10}').steps(100, {("fetch", "blocked"): 6.0}, compute=6.0)
    file.loader(1, fetches=100, wait=600, dataset="Rows", dataset_at=f"{TRAIN}:3")
    hooks = {"on_substep_end": {"at": f"{TRAIN}:44", "count": 100, "ns": 0, "own_ns": 0, "other_ns": 0, "max_ns": 0}}
    file.object(2, "callback", **{"class": "Mix", "module": "app", "at": f"{TRAIN}:43", "hooks": hooks})
    read = f"{TRAIN}:5 Rows.__getitem__", "/x/site-packages/torch/utils/data/_utils/fetch.py:54 fetch"
    samples = {
        f"{TRAIN}:45 Mix.on_substep_end": share,
        "/x/site-packages/transformers/trainer.py:9 get_batch": 1 - share,
    }
    for caller, part in samples.items():
        file.detail("sample", 600 * part, phase="fetch", state="blocked", stack=file.stack(*read, caller))
    f = only(file)
    assert f.id == "TP101"
    if share > 0.5:
        assert f.fix.startswith("DataLoader(..., num_workers=") and "the loader that Mix.on_substep_end reads" in f.fix
        assert "Mix.on_substep_end" in f.who and f.why.endswith("called by Mix.on_substep_end")
    else:
        assert f.fix.startswith("TrainingArguments(dataloader_num_workers=") and "Mix" not in f.fix + f.why


@pytest.mark.parametrize(("others", "taken"), [(1.0, True), (0.1, False)])
def test_workers_are_offered_with_the_cpus_that_others_leave(make: Make, others: float, taken: bool) -> None:
    file = make(cpus="2", torch_threads="1", wall_ns=str(3 * 10**9))
    file.steps(300, {("fetch", "python"): 6.0}, compute=4.0)
    file.loader(1, fetches=300, wait=1800, dataset="Slow")
    file.detail("sample", 1800, phase="fetch", state="python", stack=file.stack(f"{TRAIN}:41 Slow.__getitem__"))
    f = next(f for f in said(file.host(3, process_cpus=1.0, other_cpus=others)).findings if f.id == "TP101")
    assert "num_workers=2" in f.fix and ("once CPUs are free: others use 1.0 of the 2" in f.fix) == taken, f.fix


def test_data_starved_says_what_it_waits_in(make: Make) -> None:
    file = make()
    at = file.stack(f"{TRAIN}:44 Slow.__getitem__")
    file.steps(100, {("fetch", "blocked"): 6.0}, compute=6.0)
    file.loader(1, fetches=100, wait=600, dataset="Slow")
    file.detail("sample", 590, phase="fetch", state="blocked", stack=at, code=17)
    f = only(file)
    assert f.id == "TP101" and "waits (file: pread64)" in f.why and "faster CPU" in f.will_not_help


def test_a_dataset_that_runs_an_event_loop_waits_for_that_and_not_for_a_socket(make: Make) -> None:
    lib = "/usr/lib/python3.11"
    event_loop = (f"{lib}/selectors.py:468 EpollSelector.select", f"{lib}/asyncio/base_events.py:1884 _run_once")
    file = make().steps(100, {("fetch", "blocked"): 6.0}, compute=6.0)
    file.loader(1, fetches=100, wait=600, dataset="Slow")
    at = file.stack(*event_loop, f"{TRAIN}:44 Slow.__getitem__")
    f = only(file.detail("sample", 590, phase="fetch", state="blocked", stack=at, code=232))
    assert f.id == "TP101" and "waits (asyncio's event loop)" in f.why and "num_workers=" in f.fix


@pytest.mark.parametrize(
    ("process_cpus", "says", "fix", "wont"),
    [
        (1.3, True, "compute what collate makes once", "more workers than CPUs"),  # 0.3 of them the training thread's
        (0.3, False, "hold the lock for less, or", "workers by fork"),  # nobody computes: a lock that is held
        (0.0, False, "hold the lock for less, or", "workers by fork"),  # not known
    ],
)
def test_data_that_native_threads_make_is_computed(
    make: Make, process_cpus: float, says: bool, fix: str, wont: str
) -> None:
    """As by tokenizers, whose threads the training thread waits for in a lock."""
    file = make(cpus="2", torch_threads="1", wall_ns=str(3 * 10**9))
    file.steps(300, {("fetch", "blocked"): 7.0, ("fetch", "python"): 1.0}, compute=2.0)
    file.loader(1, fetches=300, wait=2400, dataset="list")
    at = file.stack(f"{TRAIN}:44 collate")
    file.detail("sample", 2100, phase="fetch", state="blocked", stack=at, code=202)
    if process_cpus:
        file.host(3, process_cpus=process_cpus, idle_cpus=2 - process_cpus)
    f = only(file)
    assert f.id == "TP101" and "waits (lock: futex)" in f.why and ("other threads" in f.why) == says, f
    assert fix in f.fix and f.will_not_help.startswith(wont)
    assert f.confidence == ("medium" if says else "high")
    if says or not process_cpus:
        assert "num_workers=2," in f.fix  # not more than CPUs
    assert ('multiprocessing_context="spawn"' in f.fix) != says  # a fork has the lock as it is held


def test_data_that_waits_for_a_lock_names_who_holds_it(make: Make) -> None:
    file = make(cpus="2", torch_threads="1", wall_ns=str(3 * 10**9))
    file.steps(300, {("fetch", "blocked"): 7.0, ("fetch", "python"): 1.0}, compute=2.0)
    file.loader(1, fetches=300, wait=2400, dataset="Cached")
    at = file.stack(f"{TRAIN}:44 Cached.__getitem__")
    file.detail("sample", 2100, phase="fetch", state="blocked", stack=at, code=202)
    file.host(3, process_cpus=0.3, idle_cpus=1.7)
    holds, woke = file.stack(f"{TRAIN}:7 refresh"), 2
    file.detail("beside", 2100, phase="fetch", thread=file.thread("cache-refresh"), stack=holds, code=woke)
    f = only(file)
    assert f.why.startswith("cache-refresh is in refresh (train.py:7) while Cached.__getitem__ (train.py:44) waits")
    advice, *_, call = f.fix.splitlines()
    assert advice == "# hold the lock for less in refresh (train.py:7), or give each worker its own:"
    assert 'multiprocessing_context="spawn"' in call and "cache-refresh" in f.who
    assert any(e.startswith("meanwhile cache-refresh is in refresh") for e in f.evidence)


def test_who_ended_its_wait_with_a_timeout_is_not_known(make: Make) -> None:
    for code, who in ((202, "refresher is in"), (202 + (1 << 16), "read (train.py")):
        file = make(cpus="4")
        file.loader(1, num_workers=0, dataset="Shards", dataset_at=f"{TRAIN}:5")
        file.steps(300, {("fetch", "blocked"): 7.0}, compute=2.0)
        at = file.stack(f"{TRAIN}:9 Shards.read")
        file.detail("sample", 2100, phase="fetch", state="blocked", stack=at, code=code)
        other = file.stack(f"{TRAIN}:7 refresh")
        file.detail("beside", 2000, phase="fetch", thread=file.thread("refresher"), stack=other, code=2)
        f = next(f for f in said(file).findings if f.id == "TP101")
        assert (who in f.why) and ("refresher" in f.why) == (code == 202), f.why


def test_data_that_waits_for_threads_is_not_said_to_wait_for_a_lock(make: Make) -> None:
    """A pool of this process is in no forked worker."""
    file = make().steps(100, {("fetch", "blocked"): 6.0}, compute=6.0)
    at = file.stack(
        "/usr/lib/python3.11/concurrent/futures/_base.py:451 Future.result", f"{TRAIN}:44 Ahead.__getitem__"
    )
    file.loader(1, fetches=100, wait=600, dataset="Ahead")
    file.detail("sample", 590, phase="fetch", state="blocked", stack=at, code=202)
    f = only(file)
    assert "hold the lock" not in f.fix and "make it in each of them" in f.fix and '"spawn"' in f.fix


def test_data_starved_names_the_dataset_where_no_sample_does(make: Make) -> None:
    """By what the hook really writes of a loader."""
    from torch.utils import data
    from trainperf.hooks.describe import describe_loader

    class Slow(data.Dataset[int]):
        def __getitem__(self, index: int) -> int:
            return index

        def __len__(self) -> int:
            return 8

    file = make(cwd=str(Path(__file__).parent)).steps(100, {("fetch", "python"): 6.0}, compute=6.0)
    file.loader(1, fetches=100, wait=600, **describe_loader(data.DataLoader(Slow())))
    assert only(file).where == f"test_findings_data.py:{Slow.__getitem__.__code__.co_firstlineno}"


def test_exact_times_without_a_sample_are_not_of_low_confidence(make: Make) -> None:
    file = make().steps(50, {("fetch", "python"): 6.0}, compute=6.0)
    file.loader(1, fetches=50, wait=300)
    f = only(file)
    assert (f.confidence, f.confidence_why) == ("medium", "no sample says where")
    file.detail("sample", 12, phase="fetch", state="python", count=3, stack=file.stack(f"{TRAIN}:41 read"))
    assert only(file).confidence == "low"  # the place may be another


def test_data_starved_on_one_cpu_does_not_advise_workers(make: Make) -> None:
    file = make(cpus="1").steps(50, {("fetch", "python"): 6.0}, compute=6.0)
    file.loader(1, fetches=50, wait=300)
    assert "num_workers" in only(file).will_not_help


@pytest.mark.parametrize(("batches", "severity"), [(4, "info"), (1, "critical")])
def test_of_several_batches_a_step_each_is_small(make: Make, batches: int, severity: str) -> None:
    """Where gradients are accumulated: a batch that a worker has ready would cost more."""
    file = make().steps(100, {("fetch", "python"): 3.2}, compute=8.8)
    file.loader(1, fetches=100 * batches, wait=320)
    f = next(f for f in said(file).findings if f.id == "TP101")
    assert f.severity == severity and ("num_workers" in f.fix) == (batches == 1)


def test_a_small_in_process_fetch_is_no_warning(make: Make) -> None:
    file = make().steps(500, {("fetch", "python"): 0.3}, compute=1.1)
    file.loader(1, fetches=500, wait=150)
    file.detail("sample", 550, phase="backward", state="native")
    found = said(file)
    assert [(f.id, f.severity) for f in found.findings] == [("TP101", "info")]
    assert found.verdict.finding == "" and "compute-bound" in found.verdict.text
    assert "no warning, but data-starved costs 21%" in found.verdict.text and "trouble found" not in found.verdict.text


@pytest.mark.parametrize(
    ("dataset", "fix"),
    [
        ("Digits", "class Digits:"),
        ("TensorDataset", "sampler=BatchSampler("),
        ("Subset(TensorDataset)", "RandomSampler(dataset), 8, drop_last"),
        ("Subset(Digits)", "class Digits:"),
        ("ConcatDataset(Digits)", "wrap ConcatDataset(Digits) in a class of yours"),
    ],
)
def test_a_class_of_torch_is_not_to_be_changed(make: Make, dataset: str, fix: str) -> None:
    file = make().steps(500, {("fetch", "python"): 0.3}, compute=1.1)
    file.loader(1, fetches=500, wait=150, dataset=dataset)
    (f,) = said(file).findings
    assert fix in f.fix and not any(f"class {torchs}" in f.fix for torchs in ("Tensor", "Subset", "Concat"))
    with file.open() as run:
        shown = re.sub(r"\s+", " ", console.summary(run))
    says = {
        "class Digits:": "give class Digits a __getitems__(indices) that makes a whole batch at once",
        "wrap ConcatDataset(Digits) in a class of yours": f"index a whole batch at once: {fix}",
    }
    assert f" ms/step: {says.get(fix, 'fetch a whole batch by one indexing: a BatchSampler')}" in shown


@pytest.mark.parametrize(
    ("share", "cpus", "expected"),
    [
        (0.97, "8", ("compute all the time", "num_workers=4", "pin_memory")),
        (0.97, "2", ("2 CPUs", "cheaper", "more workers")),
        (0.05, "8", ("wait themselves", "num_workers=", "cheaper transforms")),
        (
            0.55,
            "8",
            ("compute for 55% of the time, and wait for the rest", "num_workers=4", "the queue is empty"),
        ),
    ],
)
def test_workers_too_slow(make: Make, share: float, cpus: str, expected: tuple[str, str, str]) -> None:
    says, fix, wont = expected
    file = make(cpus=cpus).steps(100, data_wait=8.0, compute=8.0)
    file.loader(1, fetches=100, wait=800, ready={0: (95, 795), 1: (5, 5)}, num_workers=2, dataset_at=f"{TRAIN}:9")
    for pid in (71, 72):
        file.worker(1, pid, cpu_share=share, seconds=5, states={"R": 6} if share > 0.6 else {"S": 5, "D": 1})
    f = only(file)
    assert f.id == "TP102" and f.where == "train.py:9"
    assert says in f.why and fix in f.fix and wont in f.will_not_help
    assert f.cost_ns == 800_000_000
    assert f.confidence == "high" and f.confidence_why == "100 steps, 12 looks at the workers"
    assert any("12 looks at the workers" in e for e in f.evidence)


@pytest.mark.parametrize(("torch", "in_order"), [("2.13.0+cpu", True), ("2.5.1", False)])
@pytest.mark.parametrize("ready", [{0: (50, 780), 3: (50, 20)}, {3: (100, 800)}])
def test_workers_wait_for_the_one_that_computes(
    make: Make, ready: dict[int, tuple[int, float]], torch: str, in_order: bool
) -> None:
    """Batches are passed on in order: that others are ready, or counted before they are sent, is no delivery's fault;
    nor do those workers wait for storage."""
    file = make(cpus="8", torch=torch).steps(100, data_wait=8.0, compute=8.0)
    file.loader(1, fetches=100, wait=800, ready=ready, num_workers=2)
    for pid, share in ((71, 0.9), (72, 0.1)):
        file.worker(1, pid, cpu_share=share, seconds=9, states={"R" if share > 0.5 else "S": 9})
    f = only(file)
    assert f.id == "TP102" and "wait for the busiest of them, which computes all the time (on the CPU 90%" in f.why
    assert "cost alike" in f.fix and ("in_order=False" in f.fix) == in_order and "storage" not in f.why
    assert f.fix_share == pytest.approx(1 - 0.5 / 0.9)
    assert "batches are passed on in order" in f.why


def test_workers_that_pass_batches_on_in_any_order_are_not_told_to(make: Make) -> None:
    file = make(cpus="8", torch="2.13.0+cpu").steps(100, data_wait=8.0, compute=8.0)
    file.loader(1, fetches=100, wait=800, ready={0: (100, 800)}, num_workers=2, in_order=False)
    for pid, share in ((71, 0.9), (72, 0.1)):
        file.worker(1, pid, cpu_share=share, seconds=9, states={"R" if share > 0.5 else "S": 9})
    f = only(file)
    assert "wait for the busiest of them, which computes all the time" in f.why and "in order" not in f.why
    assert "cost alike" in f.fix and "in_order" not in f.fix


@pytest.mark.parametrize(
    ("ready", "says"),
    [
        (
            {0: (60, 780), 2: (40, 20)},
            ("60 of 100 fetches found no batch ready, and waited 13.0 ms each", "0.50 ms each"),
        ),
        (
            {2: (100, 800)},
            ("100 of 100 fetches found a batch ready, and took 8.0 ms each: it had only just been made",),
        ),
        ({-1: (100, 800)}, ("100 fetches took 8.0 ms each; whether a batch was ready was not seen",)),
    ],
)
def test_only_who_found_no_batch_is_said_to_have_waited_for_one(
    make: Make, ready: dict[int, tuple[int, float]], says: tuple[str, ...]
) -> None:
    file = make(cpus="8").steps(100, data_wait=8.0, compute=8.0)
    file.loader(1, fetches=100, wait=800, ready=ready, num_workers=1)
    f = only(file.worker(1, 71, cpu_share=0.97, seconds=20, states={"R": 20}))
    assert f.id == "TP102" and f.cost_ns == 800_000_000
    assert all(e.endswith(text) for text, e in zip(says, f.evidence, strict=False)), f.evidence


@pytest.mark.parametrize(("share", "looks"), [(0.1, 5), (0.05, 20), (0.55, 20), (0.97, 20)])
def test_few_batches_that_take_long_are_evened_out_by_working_further_ahead(
    make: Make, share: float, looks: int
) -> None:
    file = make(cpus="8")
    for _ in range(10):
        file.steps(9, compute=4.0).steps(1, data_wait=150.0, compute=4.0)
    file.loader(1, fetches=100, wait=1500, ready={0: (10, 1450), 2: (90, 50)}, num_workers=1, prefetch_factor=2)
    file.worker(1, 71, cpu_share=share, seconds=looks, states={"R" if share > 0.6 else "S": looks})
    f = only(file)
    assert f.id == "TP102" and "prefetch_factor=" in f.fix and "num_workers=" in f.fix, f
    assert "prefetch_factor" not in f.will_not_help and "run longer" not in f.fix


def test_a_trace_does_not_tell_what_workers_do(make: Make) -> None:
    file = make(source="trace").steps(50, data_wait=20.0, compute=20.0)
    file.loader(1, fetches=50, wait=1000, num_workers=1, num_workers_known=False)
    f = only(file)
    assert f.why.endswith("whether they compute or wait is in no trace") and "under two seconds" not in str(f.evidence)


@pytest.mark.parametrize(("share", "states"), [(0.02, {"R": 3}), (0.97, {"R": 9}), (0.02, {"S": 9})])
def test_few_looks_do_not_tell_what_workers_do(make: Make, share: float, states: dict[str, int]) -> None:
    file = make(cpus="8").steps(100, data_wait=8.0, compute=8.0)
    file.loader(1, fetches=100, wait=800, ready={0: (100, 800)}, num_workers=1)
    file.worker(1, 71, cpu_share=share, seconds=2, states=states)
    f = only(file)
    looks = sum(states.values())
    assert f.id == "TP102" and f.title == "the DataLoader's workers are too slow" and f.confidence == "low"
    assert f.confidence_why == f"100 steps, {looks} looks at the workers: too few"
    assert any(f"only {looks} looks at the workers" in e for e in f.evidence)
    assert "run longer" in f.fix and "is too slow; whether it computes or waits was not seen" in f.why
    assert f.fix.splitlines()[0].endswith("compute or wait")  # a whole sentence: the verdict shows this line alone


@pytest.mark.parametrize("kind", ["iterable", "map"])
@pytest.mark.parametrize("workers", [0, 1])
def test_each_worker_repeats_a_stream_unless_it_is_shared_out(make: Make, kind: str, workers: int) -> None:
    file = make(cpus="8").steps(100, {("fetch", "blocked"): 8.0}, compute=1.0)
    file.loader(1, fetches=100, wait=800, ready={0: (100, 800)}, num_workers=workers, kind=kind)
    if workers:
        file.worker(1, 71, cpu_share=0.02, seconds=20, states={"S": 20})
    f = only(file)
    assert f.id == ("TP102" if workers else "TP101") and "\nDataLoader(..., num_workers=" in f"\n{f.fix}"
    assert ("each repeats the whole stream" in f.fix, "get_worker_info" in f.fix) == ((kind == "iterable"),) * 2


def test_a_stream_is_told_where_the_user_reads_it() -> None:
    from torch.utils import data
    from trainperf.hooks.describe import describe_loader

    class Stream(data.IterableDataset[int]):
        def __iter__(self) -> object:
            return iter(range(8))

    described = describe_loader(data.DataLoader(Stream()))
    assert described["kind"] == "iterable"
    assert described["dataset_at"] == f"{__file__}:{Stream.__iter__.__code__.co_firstlineno}"
    assert describe_loader(data.DataLoader(data.TensorDataset()))["dataset_at"] == ""  # torch's own is nobody's


def test_a_short_fetch_from_a_stream_has_no_indices(make: Make) -> None:
    file = make().steps(500, {("fetch", "python"): 0.3}, compute=1.1)
    file.loader(1, fetches=500, wait=150, dataset="Stream", kind="iterable")
    (f,) = said(file).findings
    assert "Stream.__iter__" in f.fix and "indices" not in f.fix


def test_looks_at_all_loaders_of_a_kind_count_together(make: Make) -> None:
    file = make(cpus="8").steps(100, data_wait=8.0, compute=8.0)
    for epoch, state in ((1, "R"), (2, "S")):
        file.loader(epoch, fetches=50, wait=400, ready={0: (50, 400)}, num_workers=1)
        file.worker(epoch, 70 + epoch, cpu_share=0.04, seconds=9, states={state: 10})
    f = only(file)
    assert (
        any("ready to run at 50% of 20 looks" in e for e in f.evidence) and "1 worker of Digits waits itself" in f.why
    )


def test_workers_that_are_kept_from_the_cpus_are_not_said_to_wait(make: Make) -> None:
    file = make(cpus="8").steps(100, data_wait=8.0, compute=8.0)
    file.loader(1, fetches=100, wait=800, ready={0: (100, 800)}, num_workers=1)
    file.worker(1, 71, cpu_share=0.3, seconds=5, states={"R": 9, "S": 1})
    f = only(file)
    assert "computes, but gets a CPU only 30%" in f.why and "more workers" in f.will_not_help


@pytest.mark.parametrize(("share", "workers_are_late"), [(0.6, True), (0.36, False)])
def test_a_blocked_fetch_is_the_workers_only_where_they_mostly_compute(
    make: Make, share: float, workers_are_late: bool
) -> None:
    """Of four batches that gradients are accumulated over only the first finds a full queue. Measured: idle for 64 % of
    the time they were `too slow`, and more of them saved nothing."""
    file = make(cpus="2").steps(300, data_wait=9.2, compute=8.0)
    ready = {4: (300, 690.0), 3: (300, 690.0), 2: (600, 1380.0)}
    file.loader(1, fetches=1200, wait=2760, cpu=600, ready=ready, num_workers=2)
    for pid in (71, 72):
        file.worker(1, pid, cpu_share=share, seconds=5, states={"R": 3, "S": 6})
    f = next(f for f in said(file).findings if f.cause == "data_wait")
    assert f.id == ("TP102" if workers_are_late else "TP105")


@pytest.mark.parametrize(("seconds", "faster"), [(3, True), (5, False)])
def test_batches_that_are_made_as_fast_as_delivered_need_no_workers(make: Make, seconds: float, faster: bool) -> None:
    file = make(cpus="2").steps(300, data_wait=9.2, compute=8.0)
    file.loader(1, fetches=1200, wait=2760, cpu=2600, ready={4: (1200, 2760.0)}, num_workers=2)
    for pid in (71, 72):
        file.worker(1, pid, cpu_share=0.2, seconds=seconds, states={"S": 9})
    f = next(f for f in said(file).findings if f.id == "TP105")
    assert ("num_workers=0)  # to make a batch takes a worker 1.0 ms of CPU" in f.fix) == faster


def test_workers_that_were_not_seen_lower_the_confidence(make: Make) -> None:
    file = make().steps(100, data_wait=8.0, compute=8.0)
    file.loader(1, fetches=100, wait=800, ready={0: (100, 800)}, num_workers=2)
    assert only(file).confidence == "low"


def test_ready_but_not_delivered_names_who_holds_the_gil(make: Make) -> None:
    file = make()
    hog = file.thread("pin_memory")
    at = file.stack("/x/site-packages/torch/utils/data/_utils/pin_memory.py:60 pin_memory", f"{TRAIN}:7 pin")
    file.steps(100, {("fetch", "gil_wait"): 6.0, ("fetch", "blocked"): 2.0}, compute=10.0)
    file.loader(1, fetches=100, wait=800, gil_wait=600, ready={2: (100, 800)}, num_workers=2, pin_memory=True)
    file.detail("gil_wait", 600, phase="fetch", thread=hog, stack=at)
    f = only(file)
    assert f.id == "TP103" and "pin_memory holds the GIL" in f.why and "more workers" in f.will_not_help
    assert f.cost_ns == 800_000_000


@pytest.mark.parametrize("feeds_device", ["0", "1"])
def test_without_a_device_there_is_no_thread_that_pins(make: Make, feeds_device: str) -> None:
    file = make(feeds_device=feeds_device).steps(100, {("fetch", "blocked"): 8.0}, compute=10.0)
    file.loader(1, fetches=100, wait=800, ready={3: (100, 800)}, num_workers=2, pin_memory=True)
    f = only(file)
    assert f.id == "TP103" and ("pin-memory thread" in f.why, "large or many" in f.why) == (
        feeds_device == "1", feeds_device == "0",
    )  # fmt: skip


@pytest.mark.parametrize("looks", [1, 9, 10])
def test_a_worker_that_is_never_ahead_is_too_slow(make: Make, looks: int) -> None:
    """Its batch counts as ready while its own thread, which it keeps from the GIL, has yet to send it."""
    file = make(cpus="8").steps(100, data_wait=8.0, compute=8.0)
    file.loader(1, fetches=100, wait=800, ready={0: (40, 320), 1: (60, 480)}, num_workers=1)
    file.worker(1, 71, cpu_share=0.97, seconds=5, states={"R": looks})
    assert [(f.id, f.confidence) for f in said(file).findings] == [("TP102", "low" if looks < 10 else "high")]


@pytest.mark.parametrize(("workers", "prefetch", "ready"), [(1, 2, 2), (2, 1, 2), (2, 4, 3)])
def test_few_looks_at_workers_do_not_hide_late_deliveries(make: Make, workers: int, prefetch: int, ready: int) -> None:
    """Workers that are ahead have made their batches; one look at them in "R" does not tell that they compute."""
    file = make(cpus="8").steps(100, data_wait=8.0, compute=8.0)
    depths = {0: (10, 80), ready: (90, 720)}
    file.loader(1, fetches=100, wait=800, ready=depths, num_workers=workers, prefetch_factor=prefetch)
    file.worker(1, 71, cpu_share=0.97, seconds=5, states={"R": 1})
    assert said(file).findings[0].id == "TP103"


def test_a_hog_that_is_everywhere_is_not_told_as_delivery(make: Make) -> None:
    file = make()
    hog = file.thread("hog")
    file.steps(100, {("fetch", "gil_wait"): 3.0, ("fetch", "native"): 1.5, ("forward", "gil_wait"): 9.0}, compute=5.0)
    file.loader(1, fetches=100, wait=450, gil_wait=300, ready={2: (100, 450)}, num_workers=2)
    file.detail("gil_wait", 1200, thread=hog)
    assert loud(file) == ["gil-hog"]


def test_deserialising_is_no_starvation(make: Make) -> None:
    file = make().steps(300, {("fetch", "native"): 1.5}, compute=1.5)
    file.loader(1, fetches=300, wait=450, ready={2: (300, 450)}, num_workers=2)
    assert [(f.slug, f.severity) for f in said(file).findings] == [("delivery-cost", "info")]


@pytest.mark.parametrize(
    ("slow", "advice"),
    [(range(40), "if a cache fills in the first 40 steps"), (range(7, 400, 10), "40 batches take long")],
)
def test_what_few_steps_wait_for_is_not_mended_by_workers_alone(make: Make, slow: range, advice: str) -> None:
    file = make(cpus="8")
    for i in range(400):
        ms = 34.0 if i in slow else 0.4  # a fifth of such a step: felt, and little
        file.steps(1, {("fetch", "blocked"): ms}, compute=2.0)
    file.loader(1, fetches=400, wait=40 * 34 + 360 * 0.4, dataset="Rows", dataset_at=f"{TRAIN}:39")
    file.detail("sample", 1500, phase="fetch", state="blocked", stack=file.stack(f"{TRAIN}:41 Rows.__getitem__"))
    f = only(file)
    assert f.id == "TP101" and f.steps_affected == 40 and f.affected_share > 0.9
    assert advice in f.fix.splitlines()[0] and "workers" in f.will_not_help
    assert ("prefetch_factor=" in f.fix) == (slow.step > 1) and "num_workers=" in f.fix
