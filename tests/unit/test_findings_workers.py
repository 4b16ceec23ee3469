"""Rules about a loader's workers, on runs made by hand: too slow, or late to deliver."""

from __future__ import annotations

import pytest
from trainperf.report import console
from verdicts import TRAIN, Make, loud, only, said


@pytest.mark.parametrize(
    ("share", "cpus", "expected"),
    [
        (0.97, "8", ("compute all the time", "num_workers=4", "pin_memory")),
        (0.97, "2", ("2 CPUs", "cheaper", "more workers")),
        (0.05, "8", ("are blocked by storage, network, a lock or a sleep", "num_workers=", "cheaper transforms")),
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
    assert f.confidence == "high" and f.confidence_why == "100 steps, 12 snapshots of the workers"
    assert f.params["looks"] == 12


def test_no_worker_is_advised_on_cpus_that_others_use(make: Make) -> None:
    file = make(cpus="2").steps(100, data_wait=8.0, compute=4.0).host(5, process_cpus=0.3, other_cpus=1.6)
    file.loader(1, fetches=100, wait=800, ready={0: (95, 795), 1: (5, 5)}, num_workers=2, dataset_at=f"{TRAIN}:9")
    for pid in (71, 72):
        file.worker(1, pid, cpu_share=0.4, seconds=5, states={"R": 3, "S": 5})
    f = only(file)
    assert f.id == "TP102" and "num_workers" not in f.fix and "or stop other processes" in f.fix
    assert (f.variant, f.params["cpus"], f.params["others"]) == ("partly_no_room", 2, pytest.approx(0.8, abs=0.05))


@pytest.mark.parametrize(("others", "advised"), [(6.0, False), (4.0, True)])
def test_workers_that_compute_get_no_more_than_the_cpus_that_others_leave(
    make: Make, others: float, advised: bool
) -> None:
    file = make(cpus="8").steps(100, data_wait=8.0, compute=2.0)
    file.host(5, process_cpus=0.3, other_cpus=1.0 + others, idle_cpus=6.7 - others)
    file.loader(1, fetches=100, wait=800, ready={0: (95, 795), 1: (5, 5)}, num_workers=1, dataset_at=f"{TRAIN}:9")
    f = only(file.worker(1, 71, cpu_share=1.0, seconds=5, states={"R": 20}))
    assert ("DataLoader(..., num_workers=3)  # 8 CPUs here" in f.fix) == advised
    assert (f"1 worker and training share 8 CPUs, of which other processes use {others:.1f}" in f.why) != advised


@pytest.mark.parametrize(("cpus", "others", "saved_ms"), [("2", 0.0, 3.5), ("4", 0.0, 7.0), ("4", 1.0, 6.3)])
def test_more_workers_save_no_more_than_the_cpus_that_are_left_allow(
    make: Make, cpus: str, others: float, saved_ms: float
) -> None:
    """A batch takes a worker 12 ms of a CPU and the training 5: on two CPUs that is 8.5 ms a step."""
    file = make(cpus=cpus).steps(1000, data_wait=7.0, compute=5.0).host(12, process_cpus=5 / 12, other_cpus=1 + others)
    file.loader(1, fetches=1000, wait=7000, ready={0: (990, 6990), 1: (10, 10)}, num_workers=1)
    f = only(file.worker(1, 71, cpu_share=1.0, seconds=12, states={"R": 20}))
    assert f.id == "TP102" and f.cost_ms_per_step * f.fix_share == pytest.approx(saved_ms, rel=0.05)


@pytest.mark.parametrize("others", [0.0, 3.0, 20.0])
def test_of_a_quota_others_take_nothing(make: Make, others: float) -> None:
    file = make(cpus="64", cpu_quota="4").steps(1000, data_wait=7.0, compute=5.0)
    file.host(12, process_cpus=5 / 12, other_cpus=1 + others)
    file.loader(1, fetches=1000, wait=7000, ready={0: (990, 6990), 1: (10, 10)}, num_workers=1)
    f = only(file.worker(1, 71, cpu_share=1.0, seconds=12, states={"R": 20}))
    assert f.fix_share == 1.0 and "num_workers=3" in f.fix


@pytest.mark.parametrize("process_cpus", [1.0, 0.99])
def test_where_more_workers_would_save_nothing_none_is_advised(make: Make, process_cpus: float) -> None:
    """Or nothing to speak of."""
    file = make(cpus="2").steps(1000, data_wait=7.0, compute=5.0).host(12, process_cpus=process_cpus, other_cpus=1.0)
    file.loader(1, fetches=1000, wait=7000, ready={0: (990, 6990), 1: (10, 10)}, num_workers=1)
    f = only(file.worker(1, 71, cpu_share=1.0, seconds=12, states={"R": 20}))
    assert "num_workers" not in f.fix and "cheaper" in f.fix and "no CPU is left for more" in f.why


def test_where_there_is_room_for_one_worker_more_it_is_advised(make: Make) -> None:
    """2 - 0.8 is a little less than 3 times 0.4."""
    file = make(cpus="2").steps(100, data_wait=8.0, compute=4.0).host(5, process_cpus=0.8, other_cpus=0.8)
    file.loader(1, fetches=100, wait=800, ready={0: (95, 795), 1: (5, 5)}, num_workers=2, dataset_at=f"{TRAIN}:9")
    for pid in (71, 72):
        file.worker(1, pid, cpu_share=0.4, seconds=5, states={"R": 3, "S": 5})
    assert "num_workers=3" in only(file).fix


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
    assert f.id == "TP102" and f.variant == "busiest" and f.params["slowest"] == 0.9
    assert "balance the batches" in f.fix and ("in_order=False" in f.fix) == in_order and "storage" not in f.why
    assert f.fix_share == pytest.approx(2 * (1 - 0.5 / 0.9))  # even work of 16 ms beside the rest of the loop
    assert "batches are returned in order" in f.why


def test_even_work_on_too_few_cpus_is_no_busiest_worker(make: Make) -> None:
    """Two workers with the same samples got 79 and 53 % of a CPU, beside the training thread on two CPUs."""
    file = make(cpus="2", torch_threads="1").steps(100, data_wait=4.0, compute=4.0)
    file.loader(1, fetches=100, wait=400, ready={0: (100, 400)}, num_workers=2)
    file.worker(1, 71, cpu_share=0.79, seconds=6, states={"R": 5, "S": 1})
    file.worker(1, 72, cpu_share=0.53, seconds=6, states={"R": 3, "S": 3})
    assert (only(file).id, only(file).variant) == ("TP102", "partly_no_room")


def test_late_in_turns_on_too_few_cpus_is_no_slow_worker(make: Make) -> None:
    """Of two workers with the same samples one was waited for 16 times: both ran, and had a CPU in turns."""
    variants = []
    for states in ({"R": 6, "S": 2}, {"R": 2, "S": 6}):
        file = make(cpus="2", torch_threads="1").steps(100, data_wait=4.0, descheduled=2.0, compute=4.0)
        file.loader(1, fetches=100, wait=400, ready={0: (100, 400)}, num_workers=2)
        file.awaited(1, worker=1, reading=2, count=16, wait=300)
        file.worker(1, 71, cpu_share=0.44, seconds=8, states=states)
        file.worker(1, 72, cpu_share=0.85, seconds=8, states={"R": 6, "S": 2})
        findings = said(file.host(8, process_cpus=2.0)).findings
        variants.append(next(f.variant for f in findings if f.id == "TP102"))
    assert variants == ["all_cpus", "one_worker"]


def test_workers_that_pass_batches_on_in_any_order_are_not_told_to(make: Make) -> None:
    file = make(cpus="8", torch="2.13.0+cpu").steps(100, data_wait=8.0, compute=8.0)
    file.loader(1, fetches=100, wait=800, ready={0: (100, 800)}, num_workers=2, in_order=False)
    for pid, share in ((71, 0.9), (72, 0.1)):
        file.worker(1, pid, cpu_share=share, seconds=9, states={"R" if share > 0.5 else "S": 9})
    f = only(file)
    assert f.variant == "busiest" and f.params["passes_on"] and "in order" not in f.why
    assert "balance the batches" in f.fix and "in_order" not in f.fix


@pytest.mark.parametrize(
    ("ready", "says"),
    [
        (
            {0: (60, 780), 2: (40, 20)},
            ("60 of 100 fetches found no batch ready, and waited 13.0 ms each", "0.50 ms each"),
        ),
        (
            {2: (100, 800)},
            ("100 of 100 fetches found a batch made only just before, and took 8.0 ms each",),
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
    assert f.variant == "untraced" and "under two seconds" not in str(f.evidence)


@pytest.mark.parametrize(("share", "states"), [(0.02, {"R": 3}), (0.97, {"R": 9}), (0.02, {"S": 9})])
def test_few_looks_do_not_tell_what_workers_do(make: Make, share: float, states: dict[str, int]) -> None:
    file = make(cpus="8").steps(100, data_wait=8.0, compute=8.0)
    file.loader(1, fetches=100, wait=800, ready={0: (100, 800)}, num_workers=1)
    file.worker(1, 71, cpu_share=share, seconds=2, states=states)
    f = only(file)
    looks = sum(states.values())
    assert f.id == "TP102" and f.title == "the DataLoader's workers are too slow" and f.confidence == "low"
    assert f.confidence_why == f"100 steps, {looks} snapshots of the workers: too few"
    assert f.params["few_looks"] == looks
    assert "run longer" in f.fix and f.variant == "unseen"
    assert f.fix.splitlines()[0].endswith("compute or wait")  # a whole sentence: the verdict shows this line alone


def test_looks_at_all_loaders_of_a_kind_count_together(make: Make) -> None:
    file = make(cpus="8").steps(100, data_wait=8.0, compute=8.0)
    for epoch, state in ((1, "R"), (2, "S")):
        file.loader(epoch, fetches=50, wait=400, ready={0: (50, 400)}, num_workers=1)
        file.worker(epoch, 70 + epoch, cpu_share=0.04, seconds=9, states={state: 10})
    f = only(file)
    assert (f.variant, f.params["running"], f.params["looks"]) == ("waiting", 0.5, 20)


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
    assert (f.id, f.variant) == (("TP103", "busy") if workers_are_late else ("TP105", "unpacking"))


def test_workers_that_keep_up_are_not_too_slow_but_hand_batches_over_late(make: Make) -> None:
    """Measured: both pinned to one CPU, they were "too slow" at 1,264 of 1,267 fetches that found a batch ready. With
    samples that cost nothing a fetch took 1.2 ms."""
    file = make(cpus="2").steps(1000, {("fetch", "python"): 0.8, ("fetch", "blocked"): 2.0}, compute=2.7)
    ready = {0: (3, 24), 2: (440, 1440), 3: (550, 1320), 4: (7, 14)}
    file.loader(1, fetches=1000, wait=2798, cpu=800, ready=ready, num_workers=2, dataset="D", dataset_at=f"{TRAIN}:9")
    for pid in (71, 72):
        file.worker(1, pid, cpu_share=0.49, seconds=6, states={"R": 6, "S": 3})
    found = said(file).findings
    assert [(f.id, f.variant, f.severity) for f in found] == [
        ("TP103", "busy", "critical"),
        ("TP105", "unpacking", "info"),
    ]
    late, usual = found
    assert late.cost_ns == pytest.approx(2774e6 - 997 * 1.2e6) and "make samples of D cheaper" in late.fix
    assert usual.cost_ns == pytest.approx(997 * 1.2e6) and late.where == "train.py:9"
    assert "takes 2.8 ms" in late.why and "takes 1.2 ms" in usual.why
    assert "not counting the 1.6 ms that busy workers add" in usual.evidence[0]


@pytest.mark.parametrize("deep", [3, 2])
def test_who_finds_no_more_than_one_batch_a_worker_waits_for_busy_workers(make: Make, deep: int) -> None:
    """Each worker counts its last one before it is sent."""
    file = make(cpus="2").steps(100, {("fetch", "blocked"): 12.0}, compute=2.0)
    file.loader(1, fetches=100, wait=1200, ready={1: (20, 240), deep: (80, 960)}, num_workers=2)
    for pid in (71, 72):
        file.worker(1, pid, cpu_share=0.5, seconds=6, states={"R": 9})
    assert said(file).findings[0].id == {3: "TP103", 2: "TP102"}[deep]


@pytest.mark.parametrize(("seconds", "faster"), [(3, True), (5, False)])
def test_batches_that_are_made_as_fast_as_delivered_need_no_workers(make: Make, seconds: float, faster: bool) -> None:
    file = make(cpus="2").steps(300, data_wait=9.2, compute=8.0)
    file.loader(1, fetches=1200, wait=2760, cpu=2600, ready={4: (1200, 2760.0)}, num_workers=2)
    for pid in (71, 72):
        file.worker(1, pid, cpu_share=0.2, seconds=seconds, states={"S": 9})
    f = next(f for f in said(file).findings if f.id == "TP105")
    assert ("num_workers=0)  # making a batch takes a worker 1.0 ms" in f.fix) == faster


@pytest.mark.parametrize(("delivery", "told"), [(1.8, True), (1.0, False)])
def test_a_notable_wait_is_told_by_the_delivery_that_is_most_of_it(make: Make, delivery: float, told: bool) -> None:
    """The rest starts the workers. Neither is a tenth of the run, both together are: it was "no clear verdict"."""
    file = make(cpus="2").steps(200, data_wait=2.1, compute=16.9)
    file.loader(1, fetches=199, wait=199 * 2.0, cpu=199, ready={2: (199, 199 * delivery)}, num_workers=1)
    file.worker(1, 71, cpu_share=0.1, seconds=5, states={"S": 9})
    report = said(file)
    assert ("TP105" in [f.id for f in report.findings]) == told
    assert ("no clear verdict" in report.verdict.text) != told, report.verdict


@pytest.mark.parametrize(("in_sampler", "id"), [(0, "TP103"), (8, "TP103"), (36, "TP105")])
def test_what_samples_show_of_a_sampler_is_no_delivery(make: Make, in_sampler: int, id: str) -> None:
    """Too few to say what the sampler costs, they were counted as a delivery all the same."""
    file = make(cpus="8").steps(200, {("fetch", "python"): 4.4}, compute=16.0)
    file.loader(1, fetches=199, wait=199 * 4.4, ready={5: (199, 199 * 4.4)}, num_workers=2)
    for pid in (71, 72):
        file.worker(1, pid, cpu_share=0.1, seconds=5, states={"S": 9})
    loader = "/x/site-packages/torch/utils/data/dataloader.py"
    at = file.stack(f"{TRAIN}:9 ByLength.__iter__", f"{loader}:730 _BaseDataLoaderIter._next_index")
    file.detail("sample", in_sampler, phase="fetch", state="python", stack=at)
    queue = file.stack("/usr/lib/python3.11/multiprocessing/queues.py:113 Queue.get", f"{loader}:1440 _try_get_data")
    file.detail("sample", 300, phase="fetch", state="blocked", stack=queue)
    assert said(file).findings[0].id == id


def test_workers_that_were_not_seen_lower_the_confidence(make: Make) -> None:
    file = make().steps(100, data_wait=8.0, compute=8.0)
    file.loader(1, fetches=100, wait=800, ready={0: (100, 800)}, num_workers=2)
    assert only(file).confidence == "low"


def test_what_faster_workers_save_is_an_estimate(make: Make) -> None:
    """They leave more of the CPUs to training, too."""
    file = make(cpus="8").steps(100, data_wait=8.0, compute=8.0)
    file.loader(1, fetches=100, wait=800, ready={0: (100, 800)}, num_workers=2)
    for worker in (71, 72):
        file.worker(1, worker, cpu_share=0.97, seconds=5, states={"R": 60})
    with file.open() as run:
        assert "saves about 8.0 ms/step" in console.summary(run)


def test_ready_but_not_delivered_names_who_holds_the_gil(make: Make) -> None:
    file = make()
    hog = file.thread("pin_memory")
    at = file.stack("/x/site-packages/torch/utils/data/_utils/pin_memory.py:60 pin_memory", f"{TRAIN}:7 pin")
    file.steps(100, {("fetch", "gil_wait"): 6.0, ("fetch", "blocked"): 2.0}, compute=10.0)
    file.loader(1, fetches=100, wait=800, gil_wait=600, ready={2: (100, 800)}, num_workers=2, pin_memory=True)
    file.detail("gil_wait", 600, phase="fetch", thread=hog, stack=at)
    f = only(file)
    assert (f.id, f.variant) == ("TP103", "gil")
    assert f.cost_ns == 800_000_000


@pytest.mark.parametrize(
    ("gc", "delivery", "told"), [(28.0, 1.5, {"TP303": 28.0}), (8.0, 8.0, {"TP303": 8.0, "TP103": 8.0})]
)
def test_garbage_collected_while_a_batch_is_taken_is_no_delivery(
    make: Make, gc: float, delivery: float, told: dict[str, float]
) -> None:
    file = make().steps(100, {("fetch", "gc"): gc, ("fetch", "blocked"): delivery}, compute=40.0)
    file.loader(1, fetches=100, wait=100 * (gc + delivery), ready={3: (100, 100 * (gc + delivery))}, num_workers=2)
    found = {f.id: f for f in said(file).findings}
    assert {id: f.cost_ms_per_step for id, f in found.items()} == pytest.approx(told)
    if "TP103" in found:
        assert found["TP103"].params["each"] == pytest.approx(8e6)


def test_each_fetch_collects_garbage_however_long_it_waits(make: Make) -> None:
    file = make().steps(100, {("fetch", "gc"): 10.0, ("fetch", "blocked"): 10.4}, compute=40.0)
    file.loader(1, fetches=100, wait=2040, ready={0: (5, 250), 3: (95, 1790)}, num_workers=2)
    f = next(f for f in said(file).findings if f.id == "TP103")
    assert f.params["each"] == pytest.approx((1790 - 950) / 95 * 1e6, rel=0.001)
    assert f.cost_ms_per_step == pytest.approx(8.4)


@pytest.mark.parametrize("feeds_device", ["0", "1"])
def test_without_a_device_there_is_no_thread_that_pins(make: Make, feeds_device: str) -> None:
    file = make(feeds_device=feeds_device).steps(100, {("fetch", "blocked"): 8.0}, compute=10.0)
    file.loader(1, fetches=100, wait=800, ready={3: (100, 800)}, num_workers=2, pin_memory=True)
    f = only(file)
    assert f.id == "TP103" and ("pin_memory thread" in f.why, "large or many" in f.why) == (
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


def test_deserializing_is_no_starvation(make: Make) -> None:
    file = make().steps(300, {("fetch", "native"): 1.5}, compute=1.5)
    file.loader(1, fetches=300, wait=450, ready={2: (300, 450)}, num_workers=2)
    assert [(f.slug, f.severity) for f in said(file).findings] == [("delivery-cost", "info")]
