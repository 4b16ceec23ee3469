"""Rules about data, on runs made by hand: what they say, and when they must be silent."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from runfiles import RunFile
from trainperf.findings.model import Finding, Said
from trainperf.report import console
from verdicts import TRAIN, Make, only, said


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


@pytest.mark.parametrize(("workers", "rest"), [(0, "TP101"), (2, "TP102")])
def test_batches_that_are_dropped_before_the_first_step(make: Make, workers: int, rest: str) -> None:
    file = _skips(make(), 301, num_workers=workers)
    found = said(file)
    top, other = found.findings
    assert (found.verdict.finding, top.slug, top.severity) == ("TP107", "skipped-batches", "critical")
    assert top.title == "300 batches were made and dropped before the first step"
    assert top.cost_ns == pytest.approx(1500e6) and (top.steps_affected, top.steps) == (1, 200)
    assert "skip indices, not batches" in top.fix and "they would make the dropped batches, too" in top.will_not_help
    assert other.id == rest and other.cost_ns == pytest.approx(1000e6) and other.steps_affected == 200
    assert "inspect their samples" not in other.fix


def test_the_cost_of_a_batch_is_of_those_that_are_trained_on(make: Make) -> None:
    """Those that are dropped made each look as quick as one that no worker would pass on faster."""
    file = make()
    file.step({("fetch", "python"): 400.0}, compute=3.0, fetches=401)
    for _ in range(199):
        file.step({("fetch", "python"): 1.5}, compute=3.0)
    file.loader(1, fetches=600, wait=700, dataset="Slow")
    f = next(f for f in said(file).findings if f.id == "TP101")
    assert f.severity != "info" and f.will_not_help.endswith("making it here 1.5 ms"), f


def test_a_few_batches_that_are_dropped_are_none_of_its(make: Make) -> None:
    assert only(_skips(make(), 6)).id == "TP101"


def test_many_batches_that_a_step_trains_on_are_not_dropped(make: Make) -> None:
    assert only(_skips(make(), 301, backwards=301)).id == "TP101"


def test_many_batches_that_a_step_computes_with_are_not_dropped(make: Make) -> None:
    """Such as statistics by the model: the step spends its time elsewhere."""
    assert only(_skips(make(), 301, compute=2000.0)).id == "TP101"


def test_a_stream_skips_at_its_source(make: Make) -> None:
    f = said(_skips(make(), 301, kind="iterable")).findings[0]
    assert f.fix.startswith("# skip at the source: let Slow.__iter__ begin")


def test_batches_that_are_dropped_later_may_be_validated_with(make: Make) -> None:
    file = make().steps(100, {("fetch", "python"): 5.0}, compute=3.0)
    f = next(f for f in said(_skips(file, 301)).findings if f.id == "TP107")
    assert (f.variant, f.params["batches"], f.params["steps"]) == ("later", 300, 1)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("batches", [2, 6])
def test_many_batches_for_a_backward_may_be_a_filter(make: Make, batches: int, workers: int) -> None:
    file = make()
    for _ in range(100):
        file.step({("fetch", "blocked" if workers else "python"): 5.0}, compute=5.0, fetches=batches)
    count = 100 * batches
    ready = {0: (count, 500.0)} if workers else None
    file.loader(1, fetches=count, wait=500, dataset="Slow", num_workers=workers, ready=ready)
    fix = only(file).fix
    assert ("(it fetches 6 for each backward)" in fix) == (batches == 6), fix


@pytest.mark.parametrize(
    ("library", "advice"),
    [
        ("/usr/lib/python3.11/json/decoder.py:355 JSONDecoder.raw_decode", "# text formats: parse once"),
        (
            "/x/site-packages/pandas/core/indexing.py:1191 _LocIndexer.__getitem__",
            "# pandas: take the columns out once",
        ),
        ("/x/site-packages/h5py/_hl/dataset.py:758 Dataset.__getitem__", "# chunked files: write one chunk"),
        ("/usr/lib/python3.11/gzip.py:301 GzipFile.read", "# compressed files: unpack them once"),
        ("/x/site-packages/fsspec/spec.py:1945 AbstractBufferedFile.read", "# remote files: copy them"),
        ("/x/site-packages/numpy/lib/_npyio_impl.py:488 load", "# arrays: many samples in one file"),
        ("/x/site-packages/transformers/tokenization_utils_base.py:3078 encode", "# tokens: tokenize once"),
        ("/x/site-packages/attr/_make.py:10 load", ""),
    ],
)
@pytest.mark.parametrize("elsewhere", [10, 400])
def test_a_library_with_a_cheaper_way_is_advised_of(make: Make, library: str, advice: str, elsewhere: int) -> None:
    file = make().steps(100, {("fetch", "python"): 5.0}, compute=5.0)
    user = (f"{TRAIN}:41 Slow.__getitem__", "/x/site-packages/torch/utils/data/_utils/fetch.py:54 fetch")
    file.detail("sample", 300, phase="fetch", state="python", stack=file.stack(library, *user))
    file.detail("sample", elsewhere, phase="fetch", state="python", stack=file.stack(*user))
    file.loader(1, fetches=100, wait=500, dataset="Slow")
    last = only(file).fix.split("\n")[-1]
    assert last.startswith(advice if advice and elsewhere < 300 else "DataLoader(")


@pytest.mark.parametrize("read", [8_000, 1_000_000])
def test_reading_less_comes_before_workers(make: Make, read: int) -> None:
    """They would read as much."""
    reads = json.dumps({"1": [100 * read, 100, 4000, 1]})
    file = make().steps(100, {("fetch", "python"): 80.0}, compute=5.0).meta(reads=reads)
    user = (f"{TRAIN}:41 Slow.__getitem__", "/x/site-packages/torch/utils/data/_utils/fetch.py:54 fetch")
    library = "/x/site-packages/h5py/_hl/dataset.py:758 Dataset.__getitem__"
    file.detail("sample", 300, phase="fetch", state="python", stack=file.stack(library, *user))
    file.loader(1, fetches=100, wait=8000, dataset="Slow")
    f = only(file)
    expected = ["# chunked files: if most of what is read is not used", "DataLoader("]
    if read < 16_000:
        expected = ["DataLoader(", "# chunked files: write one chunk"]
    assert [line[: len(start)] for line, start in zip(f.fix.split("\n"), expected, strict=True)] == expected
    assert any("over 100 times its size" in line for line in f.evidence) == (read > 16_000)


@pytest.mark.parametrize(("cpus", "workers"), [(2, 16), (8, 32), (64, 81)])
def test_workers_for_data_that_waits_are_no_more_than_a_machine_has_room_for(
    make: Make, cpus: int, workers: int
) -> None:
    file = make(cpus=str(cpus)).steps(100, {("fetch", "blocked"): 160.0}, compute=2.0)
    file.loader(1, fetches=100, wait=16_000, dataset="Slow")
    f = only(file)
    assert f"num_workers={workers}," in f.fix
    assert f.fix_share == pytest.approx(1 - max(0.0, 160 / workers - 2) / 160, abs=0.02)


def test_what_arrows_threads_read_is_not_known(make: Make) -> None:
    file = make().steps(100, {("fetch", "python"): 80.0}, compute=5.0).meta(reads='{"1": [3200000, 100, 4000, 1]}')
    user = (f"{TRAIN}:41 Slow.__getitem__", "/x/site-packages/torch/utils/data/_utils/fetch.py:54 fetch")
    library = "/x/site-packages/pyarrow/parquet/core.py:1800 read_table"
    file.detail("sample", 300, phase="fetch", state="python", stack=file.stack(library, *user))
    file.loader(1, fetches=100, wait=8000, dataset="Slow")
    f = only(file)
    assert not any("its size" in line for line in f.evidence)
    assert f.fix.split("\n")[-1].startswith("# rows of a table: read many at once")


def test_what_is_received_for_remote_files_is_read(make: Make) -> None:
    reads = json.dumps({"1": [0, 0, 4000, 1]})
    file = make().steps(100, {("fetch", "blocked"): 80.0}, compute=5.0).meta(reads=reads)
    user = (f"{TRAIN}:41 Slow.__getitem__", "/x/site-packages/torch/utils/data/_utils/fetch.py:54 fetch")
    library = "/x/site-packages/fsspec/spec.py:1945 AbstractBufferedFile.read"
    file.detail("sample", 300, phase="fetch", state="blocked", stack=file.stack(library, *user), code=45)
    file.loader(1, fetches=100, wait=8000, dataset="Slow")
    file.host(8, process_cpus=1, machine={"own_net_received_bytes": 12.5e6})
    f = only(file)
    assert any("MB are read for each batch of 4.0 kB: over 100 times its size" in line for line in f.evidence)
    assert f.fix.startswith("# remote files: copy them to a local disk once; or, if most of what is read is not used")


def test_where_nothing_trains_no_batch_is_said_to_lack_a_backward(make: Make) -> None:
    file = make()
    for _ in range(100):
        file.step({("fetch", "python"): 5.0}, compute=5.0, fetches=1, backwards=0, optimizer_steps=0)
    file.loader(1, fetches=100, wait=500, dataset="Slow")
    f = next(f for f in said(file).findings if f.id == "TP101")
    assert "backward" not in f.fix


def _skips(
    file: RunFile, fetches: int, *, backwards: int = 1, compute: float = 3.0, num_workers: int = 0, kind: str = "map"
) -> RunFile:
    """A step that fetches so many batches, and 199 others of one each."""
    mechanism = "blocked" if num_workers else "python"
    file.step({("fetch", mechanism): 5.0 * fetches}, compute=compute, fetches=fetches, backwards=backwards)
    for _ in range(199):
        file.step({("fetch", mechanism): 5.0}, compute=3.0)
    count = 199 + fetches
    ready = {0: (count, 5.0 * count)} if num_workers else None
    file.loader(1, fetches=count, wait=5 * count, ready=ready, dataset="Slow", num_workers=num_workers, kind=kind)
    return file


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
    pays = count * 1.2 <= share * 600 * (1 - 0.33)
    assert ("num_workers=" in f.fix) == pays and f.fix_share == pytest.approx(share - count * 1.2 / 600 if pays else 1)


def _batches_of_6_ms(make: Make, mechanism: str, *, seconds: int = 4, **host: float) -> Finding:
    """And 2 ms of computing; on two CPUs, of which so many are used (none: that is not known)."""
    steps = 125 * seconds
    file = make(cpus="2", torch_threads="2").steps(steps, {("fetch", mechanism): 6.0}, compute=2.0)
    file.loader(1, fetches=steps, wait=6 * steps, dataset="Rows")
    at = file.stack(f"{TRAIN}:5 Rows.__getitem__")
    file.detail("sample", 6 * steps, phase="fetch", state=mechanism, stack=at, count=60)
    return only(file.host(seconds, **host) if host else file)


# To pass a batch on takes 1.2 ms of the CPU on either side; nine tenths of the CPUs' time are used.
@pytest.mark.parametrize(
    ("mechanism", "used", "step"),
    [
        ("blocked", {}, 2 + 1.2),
        ("python", {}, (8 + 2.4) / (0.9 * 2)),
        ("python", {"process_cpus": 1.0, "other_cpus": 0.0, "idle_cpus": 1.0}, (8 + 2.4) / (0.9 * 2)),
        ("python", {"process_cpus": 1.0, "other_cpus": 0.4, "idle_cpus": 0.6}, (8 + 2.4) / (0.9 * 1.6)),
        ("python", {"process_cpus": 1.25, "other_cpus": 0.0, "idle_cpus": 0.75}, (10 + 2.4) / (0.9 * 2)),
        ("python", {"process_cpus": 1.0, "other_cpus": 1.0, "idle_cpus": 0.0}, 8.0),
    ],
)
def test_workers_that_compute_share_the_cpus_with_training(
    make: Make, mechanism: str, used: dict[str, float], step: float
) -> None:
    """With other programs and with torch's own threads, too."""
    f = _batches_of_6_ms(make, mechanism, **used)
    assert "num_workers=" in f.fix and f.fix_share == pytest.approx((8 - step) / 6)


@pytest.mark.parametrize(
    ("mechanism", "ms", "advised"),
    [("blocked", 1.6, False), ("blocked", 2.0, True), ("python", 2.0, False), ("python", 3.0, True)],
)
def test_short_batches_are_for_workers_sooner_where_they_only_wait(
    make: Make, mechanism: str, ms: float, advised: bool
) -> None:
    """Measured: two workers saved 22 % of steps whose samples slept for 2 ms; 1.7 ms that computed got longer."""
    file = make(cpus="4").steps(200, {("fetch", mechanism): ms}, compute=ms)
    file.loader(1, fetches=200, wait=200 * ms, dataset="Rows")
    at = file.stack(f"{TRAIN}:5 Rows.__getitem__")
    file.detail("sample", 200 * ms, phase="fetch", state=mechanism, stack=at, code=230, count=60)
    f = only(file)
    assert ("num_workers=" in f.fix) == advised and f.will_not_help.startswith("DataLoader workers: ") == (not advised)
    assert f.fix_share == (pytest.approx((ms - 1.2) / ms) if advised else 1)


@pytest.mark.parametrize(("times", "advised"), [(1, False), (3, True)])
def test_one_place_that_waits_does_not_make_a_fetch_that_mostly_computes_wait(
    make: Make, times: int, advised: bool
) -> None:
    file = make(cpus="4")
    file.steps(200, {("fetch", "blocked"): 0.85 * times, ("fetch", "python"): 1.25 * times}, compute=2.0)
    file.loader(1, fetches=200, wait=420 * times, dataset="Rows")
    for line, ms, state in ((5, 170, "blocked"), (9, 125, "python"), (14, 125, "python")):
        at = file.stack(f"{TRAIN}:{line} Rows.part_{line}")
        file.detail("sample", ms * times, phase="fetch", state=state, stack=at, code=230, count=ms)
    f = only(file)
    assert f.where == "train.py:5" and ("num_workers=" in f.fix) == advised
    assert "does not compute" not in f.will_not_help


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
    assert f.fix.startswith("# 10 batches are slow") == few and (f.steps_affected == 10) == few
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


@pytest.mark.parametrize("ms", [1.1, 6.0])
@pytest.mark.parametrize("loader", [False, True])
def test_what_no_dataloader_makes_is_advised_no_workers(make: Make, ms: float, *, loader: bool) -> None:
    """An iterable of one's own, or `run.phase("fetch")` around a replay buffer's sample()."""
    file = make(cpus="4").steps(200, {("fetch", "python"): ms}, compute=0.9)
    if loader:
        file.loader(1, fetches=200, wait=200 * ms, dataset="Rows", is_dataloader=False)
    at = file.stack(f"{TRAIN}:5 Rows.__next__")
    f = only(file.detail("sample", 200 * ms, phase="fetch", state="python", stack=at, count=60))
    assert (f.id, f.variant, f.params["fix"], f.fix_share) == ("TP101", "by_hand", (Said("index_arrays"),), 1)


@pytest.mark.parametrize(("compute", "saved"), [(6.0, 1.0), (3.0, 0.5)])
@pytest.mark.parametrize("loader", [False, True])
def test_a_wait_of_the_loops_own_can_overlap_with_training(
    make: Make, compute: float, saved: float, *, loader: bool
) -> None:
    file = make(cpus="4").steps(100, {("fetch", "blocked"): 6.0}, compute=compute)
    if loader:
        file.loader(1, fetches=100, wait=600, dataset="Rows", is_dataloader=False)
    f = only(file)
    assert (f.id, f.variant, f.params["fix"]) == ("TP101", "by_hand_waiting", (Said("fetch_ahead"),))
    assert f.params["usable"] is None and f.fix_share == pytest.approx(saved)


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
        and f.will_not_help.endswith("1.9 ms, making it here 2.0 ms")
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
    assert "num_workers=2" in f.fix and ("once CPUs are free: other processes use 1.0 of the 2" in f.fix) == taken, (
        f.fix
    )


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
        (1.3, True, "precompute what collate makes", "more workers than CPUs"),  # 0.3 of them the training thread's
        (0.3, False, "hold the lock for less time, or", "forked workers"),  # nobody computes: a lock that is held
        (0.0, False, "hold the lock for less time, or", "forked workers"),  # not known
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
    assert f.why.startswith(
        "thread 'cache-refresh' is in refresh (train.py:7) while Cached.__getitem__ (train.py:44) waits"
    )
    advice, *_, call = f.fix.splitlines()
    assert advice == "# hold the lock for less time in refresh (train.py:7), or use one lock per worker:"
    assert 'multiprocessing_context="spawn"' in call and "cache-refresh" in f.who
    assert any(e.startswith("meanwhile thread 'cache-refresh' is in refresh") for e in f.evidence)


def test_who_ended_its_wait_with_a_timeout_is_not_known(make: Make) -> None:
    for code, who in ((202, "'refresher' is in"), (202 + (1 << 16), "read (train.py")):
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
    assert "hold the lock" not in f.fix and "start it in each of them" in f.fix and '"spawn"' in f.fix


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
    assert "no warning, but data-starved takes 21%" in found.verdict.text and "trouble found" not in found.verdict.text


@pytest.mark.parametrize(
    ("dataset", "fix"),
    [
        ("Digits", "class Digits:"),
        ("TensorDataset", "sampler=BatchSampler("),
        ("Subset(TensorDataset)", "RandomSampler(dataset), 8, drop_last"),
        ("Subset(Digits)", "class Digits:"),
        ("ConcatDataset(Digits)", "wrap ConcatDataset(Digits) in your own class"),
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
        "class Digits:": "give class Digits a __getitems__(indices) that returns the list of samples",
        "wrap ConcatDataset(Digits) in your own class": f"read a whole batch at once: {fix}",
    }
    assert f" ms/step: {says.get(fix, 'fetch a whole batch by one indexing: a BatchSampler')}" in shown


def test_who_fetches_a_batch_by_one_indexing_is_not_told_to(make: Make) -> None:
    file = make().steps(500, {("fetch", "python"): 0.3}, compute=1.1)
    file.loader(1, fetches=500, wait=150, dataset="TensorDataset", sampler="BatchSampler", batch_size=None)
    (f,) = said(file).findings
    assert f.fix == "# make batches of TensorDataset cheaper: preprocess offline"


@pytest.mark.parametrize("kind", ["iterable", "map"])
@pytest.mark.parametrize("workers", [0, 1])
def test_each_worker_repeats_a_stream_unless_it_is_shared_out(make: Make, kind: str, workers: int) -> None:
    file = make(cpus="8").steps(100, {("fetch", "blocked"): 8.0}, compute=1.0)
    file.loader(1, fetches=100, wait=800, ready={0: (100, 800)}, num_workers=workers, kind=kind)
    if workers:
        file.worker(1, 71, cpu_share=0.02, seconds=20, states={"S": 20})
    f = only(file)
    assert f.id == ("TP102" if workers else "TP101") and "\nDataLoader(..., num_workers=" in f"\n{f.fix}"
    assert ("each worker repeats the whole stream" in f.fix, "get_worker_info" in f.fix) == ((kind == "iterable"),) * 2


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


@pytest.mark.parametrize(
    ("slow", "advice"),
    [(range(40), "if a cache fills in the first 40 steps"), (range(7, 400, 10), "40 batches are slow")],
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


def test_a_fetch_that_is_all_library_code_names_the_data(make: Make) -> None:
    """Not the trainer's entry, which the user's line calls; nor the loader's."""
    collate = "/x/site-packages/torch/utils/data/_utils/collate.py:398 default_collate"
    next_ = "/x/site-packages/torch/utils/data/dataloader.py:741 _BaseDataLoaderIter.__next__"
    fit = "/x/site-packages/lightning/pytorch/trainer/trainer.py:584 Trainer.fit"
    file = make().steps(100, {("fetch", "native"): 8.0, ("forward", "native"): 4.0})
    file.loader(1, fetches=100, wait=800, dataset="TensorDataset")
    stack = file.stack(collate, next_, fit, f"{TRAIN}:9 <module>")
    f = only(file.detail("sample", 800, phase="fetch", state="native", stack=stack, count=60))
    assert f.why == (
        "TensorDataset computes on the training thread, mostly library code called by <module> (train.py:9)"
    )
    assert "100% of 60 stack samples in library code" in f.evidence and f.where == "train.py:9"
