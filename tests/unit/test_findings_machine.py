"""Rules about CPUs and the container, on runs made by hand: what they must say, and when they must be silent."""

from __future__ import annotations

import json

import pytest
from runfiles import RunFile
from trainperf.findings.model import Said
from trainperf.report import console
from verdicts import TRAIN, Make, abstained, load_of, loud, only, said


def test_descheduled_says_by_whom(make: Make) -> None:
    file = make(cpus="2", torch_threads="2").steps(100, compute=8.0, descheduled=3.0)
    file.loader(1, num_workers=0, fetches=100, ready={2: (100, 20)}, wait=20)
    f = only(file.host(3, process_cpus=0.8, other_cpus=1.6))
    assert (f.id, f.variant, f.by_others) == ("TP307", "others", True)


@pytest.mark.parametrize(("child", "named"), [(0.49, True), (0.2, False)])
def test_a_child_process_that_has_half_of_the_one_cpu_is_who_takes_it(make: Make, child: float, named: bool) -> None:
    file = make(cpus="1", torch_threads="1", wall_ns=str(3 * 10**9)).steps(100, compute=5.0, descheduled=5.0)
    file.meta(children_cpu_before_ns="0", children_cpu_after_ns=str(int(3e9 * child)))
    f = only(file.host(3, process_cpus=0.5, other_cpus=child))
    assert (f.variant.startswith("children")) == named


def test_child_processes_are_not_other_processes(make: Make) -> None:
    file = make(cpus="2", torch_threads="2", wall_ns=str(3 * 10**9)).steps(100, compute=8.0, descheduled=3.0)
    file.meta(children_cpu_before_ns=str(5 * 10**9), children_cpu_after_ns=str(5 * 10**9 + 3 * 1_400_000_000))
    f = only(file.host(3, process_cpus=0.4, other_cpus=1.6))
    assert (f.variant, f.params["fewer"], f.saves_more) == ("children_and_threads", 1, True)
    assert (load_of(f)["children"], load_of(f)["others"]) == (1.4, 0.2)


def test_workers_that_lived_too_shortly_to_be_read_are_no_other_child_processes(make: Make) -> None:
    """New ones at each epoch of a second: what they used is known of all child processes together."""
    file = make(cpus="2", torch_threads="1", wall_ns=str(3 * 10**9)).steps(100, compute=8.0, descheduled=3.0)
    file.meta(children_cpu_before_ns="0", children_cpu_after_ns=str(3 * 1_400_000_000))
    file.loader(1, num_workers=1, fetches=100, ready={2: (100, 20)}, wait=20)
    for pid in range(3):
        file.worker(1, pid, cpu_share=0.9, seconds=0, states={"R": 1})
    f = only(file.host(3, process_cpus=0.4, other_cpus=1.6))
    assert not f.variant.startswith("children") and (load_of(f)["workers"], load_of(f)["others"]) == (1.4, 0.2)


def test_a_child_process_beside_workers_that_were_read_is_none_of_them(make: Make) -> None:
    """In a short run too: what of a worker's life was not read is known."""
    file = make(cpus="2", torch_threads="1", wall_ns=str(5 * 10**9)).steps(100, compute=30.0, descheduled=15.0)
    file.meta(children_cpu_before_ns="0", children_cpu_after_ns=str(5 * 1_300_000_000))
    file.loader(1, num_workers=2, fetches=100, ready={2: (100, 20)}, wait=20)
    for pid in range(2):
        file.worker(1, pid, cpu_share=0.15, seconds=4.8, states={"S": 20, "R": 4})
    f = only(file.host(5, process_cpus=0.6, other_cpus=1.3))
    assert f.variant.startswith("children") and load_of(f)["children"] == 0.9, f


@pytest.mark.parametrize(("others", "blamed"), [(6.0, False), (14.0, True)])
def test_others_on_cpus_that_the_run_may_not_use_are_not_in_its_way(make: Make, others: float, blamed: bool) -> None:
    """Two of 16 CPUs are its own: others may be on the other 14, and are not if they use more than those."""
    file = make(cpus="2", torch_threads="1").steps(100, compute=8.0, descheduled=3.0)
    f = only(file.host(3, process_cpus=0.6, other_cpus=others + 0.9, idle_cpus=14.5 - others))
    assert (f.variant == "others") == blamed and (f.params["machine"], f.params["elsewhere"]) == (16, True)
    assert load_of(f)["others"] == (0.9 if blamed else 0.0)


def test_nobody_is_named_where_it_is_not_clear_who_took_the_cpus(make: Make) -> None:
    file = make(cpus="2", torch_threads="1").steps(100, compute=8.0, descheduled=3.0)
    unseen = only(file)
    assert unseen.variant == "too_short" and unseen.why in unseen.confidence_why
    unclear = only(file.host(3, process_cpus=0.9, other_cpus=0.4))
    assert (unclear.variant, unclear.confidence, load_of(unclear)["own_threads"]) == ("unclear", "medium", 0.0)


@pytest.mark.parametrize(
    ("meta", "run", "wanted", "fewer"),
    [
        ({"cpus": "2", "torch_threads": "1"}, (4, 0.0), 5, ("workers", 1)),
        ({"cpus": "2", "torch_threads": "8"}, (0, 0.0), 8, ("threads", 2)),
        ({"cpus": "8", "torch_threads": "6"}, (4, 0.0), 10, ("threads", 4)),
        ({"cpus": "1", "torch_threads": "2"}, (0, 0.0), 2, ("threads", 1)),
        # The other ranks are other processes, and this run's own.
        ({"cpus": "8", "torch_threads": "8", "local_world_size": "4"}, (0, 7.0), 32, ("threads", 2)),
        # So certain that others do not excuse it.
        ({"cpus": "2", "torch_threads": "16"}, (0, 1.6), 16, ("threads", 2)),
    ],
)
def test_more_threads_and_workers_than_cpus(
    make: Make, meta: dict[str, str], run: tuple[int, float], wanted: int, fewer: tuple[str, int]
) -> None:
    workers, others = run
    file = make(**meta).steps(100, compute=9.0, descheduled=1.5)
    file.loader(1, num_workers=workers, fetches=100, ready={2: (100, 20)}, wait=20)
    f = only(file.host(3, process_cpus=0.9 if others else 0.95 * min(int(meta["cpus"]), 5.2), other_cpus=others))
    variant, number = fewer
    assert (f.id, f.variant, f.params["wanted"]) == ("TP602", variant, wanted)
    assert f.params["fewer_workers" if variant == "workers" else "fewer"] == number
    assert f.params["torchrun"] == ("local_world_size" in meta)
    assert f.cost_ms_per_step == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("few_ns", "saved", "share"), [(10, 9.0, 1.0), (85, 1.5, 0.5), (99, 0.1, 1 / 30), (140, 0.0, 0.0)]
)
def test_what_fewer_threads_save_is_as_layers_on_fewer_took(
    make: Make, few_ns: int, saved: float, share: float
) -> None:
    """Threads that spin for each other compute as well, by the kernel's counts; others lose nothing by their number."""
    tried = json.dumps({"threads": 2, "many_ns": 100, "few_ns": few_ns})
    cells = {("forward", "native"): 3.0, ("backward", "native"): 4.0, ("other", "python"): 1.0}
    waits = {("forward", "descheduled"): 1.0, ("backward", "descheduled"): 2.0}
    file = make(cpus="2", torch_threads="8", fewer_threads=tried).steps(100, cells | waits)
    f = next(f for f in said(file.host(3, process_cpus=1.9)).findings if f.id == "TP602")
    assert (f.variant, f.severity, f.saving) == ("threads", "critical", "about") and f.fix_share == pytest.approx(share)
    assert f.cost_ms_per_step * f.fix_share == pytest.approx(saved)
    assert f.cost_ms_per_step == pytest.approx(max(saved, 3.0)) and f.params["few_took"] == (
        10 if few_ns == 1 else few_ns
    )


def test_layers_on_fewer_threads_tell_nothing_where_other_programs_use_the_cpus(make: Make) -> None:
    tried = json.dumps({"threads": 2, "many_ns": 100, "few_ns": 10})
    file = make(cpus="2", torch_threads="16", fewer_threads=tried).steps(100, compute=9.0, descheduled=1.5)
    f = only(file.host(3, process_cpus=0.9, other_cpus=1.6))
    assert (f.id, f.fix_share, f.params["few_took"]) == ("TP602", 1.0, None)


@pytest.mark.parametrize("damaged", ["", "[]", "{}", '{"threads": 2, "many_ns": 0, "few_ns": 1}', '{"threads": "2"}'])
def test_a_damaged_record_of_fewer_threads_tells_nothing(make: Make, damaged: str) -> None:
    file = make(cpus="2", torch_threads="8", fewer_threads=damaged).steps(100, compute=9.0, descheduled=1.5)
    f = only(file.host(3, process_cpus=1.9))
    assert (f.id, f.fix_share, f.params["few_took"]) == ("TP602", 1.0, None)


@pytest.mark.parametrize("started_by_it", [False, True])
def test_the_other_ranks_of_the_job_are_no_other_processes(make: Make, started_by_it: bool) -> None:
    file = make(cpus="8", torch_threads="1", local_world_size="4", wall_ns=str(60 * 10**9))
    file.steps(100, compute=9.0, descheduled=1.5).loader(1, num_workers=2, fetches=100, ready={2: (100, 20)}, wait=20)
    for pid in range(2):
        file.worker(1, pid, cpu_share=0.65, seconds=60, states={"R": 60})
    if started_by_it:  # as by Lightning's ddp
        file.meta(children_cpu_before_ns="0", children_cpu_after_ns=str(60 * 7_300_000_000))
    f = only(file.host(60, process_cpus=0.7, other_cpus=7.3))
    assert (f.id, f.params["wanted"], f.params["have"]) == ("TP602", 12, Said("have_cpus", {"cpus": 8}))
    assert load_of(f)["ranks"] > 0 == load_of(f)["others"]


def test_a_new_loader_in_each_epoch_takes_the_place_of_the_last(make: Make) -> None:
    file = make(cpus="4", torch_threads="2").steps(100, compute=8.0, descheduled=3.0)
    for epoch in range(1, 4):
        file.loader(epoch, num_workers=2, fetches=33, ready={2: (33, 7)}, wait=7)
        for pid in range(2):
            file.worker(epoch, 10 * epoch + pid, cpu_share=0.9, seconds=1, states={"R": 2})
    file.loader(9, num_workers=2, dataset="Test", validation=(20, 5))
    f = only(file.host(3, process_cpus=1.0, other_cpus=1.9))
    assert (f.id, f.params["cpus"], f.params["threads"], f.params["workers"]) == ("TP307", 4, 2, 2)


def test_workers_that_wait_are_not_who_takes_the_cpus(make: Make) -> None:
    file = make(cpus="2", torch_threads="1").steps(100, compute=8.0, descheduled=3.0)
    file.loader(1, num_workers=4, fetches=100, ready={2: (100, 20)}, wait=20)
    assert loud(file.host(3, process_cpus=0.7, other_cpus=0.4)) == ["descheduled"]
    busy = make(cpus="2", torch_threads="1").steps(100, compute=8.0, descheduled=3.0)
    busy.loader(1, num_workers=4, fetches=100, ready={2: (100, 20)}, wait=20)
    assert only(busy.host(3, process_cpus=0.4, other_cpus=1.6)).variant == "others"


def test_workers_on_one_cpu_that_others_use_too_are_told_with_them(make: Make) -> None:
    """A watch on one CPU of two, both busy: its own processes use half of it."""
    file = make(cpus="1", torch_threads="1").steps(300, compute=4.0, descheduled=6.0)
    file.loader(1, num_workers=4, fetches=300, ready={2: (300, 60)}, wait=60)
    for pid in range(4):
        file.worker(1, pid, cpu_share=0.04, seconds=3, states={"R": 3})
    f = only(file.host(3, process_cpus=0.36, other_cpus=1.64))
    assert f.id == "TP307" and f.params.get("named") == (Said("both_workers"),), f
    assert f.variant == "both_many_workers" and (load_of(f)["workers"], load_of(f)["others"]) == (0.2, 0.5)
    idle = make(cpus="1", torch_threads="1").steps(300, compute=4.0, descheduled=6.0)
    idle.loader(1, num_workers=4, fetches=300, ready={2: (300, 60)}, wait=60)
    f = only(idle.host(3, process_cpus=0.52, other_cpus=1.48))  # who wait
    assert f.id == "TP307" and not f.variant.startswith("both"), f


def test_no_fewer_workers_than_cpus_are_told_where_others_take_these(make: Make) -> None:
    """One worker, made slower than the two were, would set the pace."""
    file = make(cpus="2", torch_threads="1").steps(100, compute=2.0, descheduled=4.0)
    file.loader(1, num_workers=2, fetches=100, ready={2: (100, 20)}, wait=20)
    for pid in range(2):
        file.worker(1, pid, cpu_share=0.3, seconds=3, states={"R": 3})
    f = only(file.host(3, process_cpus=0.4, other_cpus=1.6))
    assert f.params.get("named") == (Said("both_workers"),) and f.variant == "both", f


def test_workers_that_use_more_than_the_others_are_told_with_them(make: Make) -> None:
    """8 workers on 2 CPUs: it is not only the others' doing."""
    file = make(cpus="2", torch_threads="1").steps(100, compute=2.0, descheduled=4.0)
    file.loader(1, num_workers=8, fetches=100, ready={2: (100, 20)}, wait=20)
    for pid in range(8):
        file.worker(1, pid, cpu_share=0.9 / 8, seconds=3, states={"R": 3})
    f = only(file.host(3, process_cpus=0.3, other_cpus=1.6))
    assert f.id == "TP307" and f.params.get("named") == (Said("both_workers"),), f
    assert (f.variant, f.by_others) == ("both_many_workers", False)
    assert (load_of(f)["workers"], load_of(f)["others"]) == (0.9, 0.7)


@pytest.mark.parametrize(("children", "others"), [(0.6, 0.9), (0.9, 0.6), (0.4, 1.2)])
def test_child_processes_are_told_with_others(make: Make, children: float, others: float) -> None:
    file = make(cpus="2", torch_threads="1", wall_ns=str(3 * 10**9)).steps(100, compute=8.0, descheduled=6.0)
    file.meta(children_cpu_before_ns="0", children_cpu_after_ns=str(round(3e9 * children)))
    f = only(file.host(3, process_cpus=0.4, other_cpus=children + others))
    assert (f.variant, f.params["named"]) == ("both", (Said("both_children"),))
    assert (load_of(f)["children"], load_of(f)["others"]) == (children, others)
    assert f.by_others == (others > children)  # then the run's own troubles come first
    few = make(cpus="2", torch_threads="1", wall_ns=str(3 * 10**9)).steps(100, compute=8.0, descheduled=6.0)
    few.meta(children_cpu_before_ns="0", children_cpu_after_ns=str(round(3e9 * 0.1)))
    assert only(few.host(3, process_cpus=0.4, other_cpus=1.4)).variant == "others"


def test_as_many_threads_as_cpus_are_not_too_many(make: Make) -> None:
    file = make(cpus="2", torch_threads="2").steps(100, compute=8.0, descheduled=0.2)
    assert loud(file.host(3, process_cpus=1.9)) == []
    crowded = make(cpus="2", torch_threads="2").steps(100, compute=8.0, descheduled=3.0)
    assert loud(crowded.host(3, process_cpus=0.8, other_cpus=1.2)) == ["descheduled"]
    idle = make(cpus="2", torch_threads="16").steps(100, compute=8.0)  # set so, but nothing waits
    assert loud(idle.host(3, process_cpus=0.9)) == []


def test_no_fewer_workers_are_advised_where_the_loop_waits_for_them(make: Make) -> None:
    """With one of two workers a training took 4.8 s, not 3.8."""
    for threads, variant in (("1", "cheaper_samples"), ("2", "threads")):
        file = make(cpus="2", torch_threads=threads).steps(100, compute=4.0, descheduled=3.0, data_wait=3.0)
        file.loader(1, num_workers=2, fetches=100, ready={0: (100, 300)}, wait=300)
        f = next(f for f in said(file.host(1, process_cpus=2.0)).findings if f.id == "TP602")
        assert (f.variant, f.params["fewer"], f.params["threaded"]) == (variant, 1, threads == "2")


def test_waits_for_a_cpu_that_the_workers_have_are_part_of_what_slow_workers_cost(make: Make) -> None:
    file = make(cpus="2", torch_threads="1").steps(100, compute=4.0, descheduled=3.0, data_wait=3.0)
    file.loader(1, num_workers=2, fetches=100, ready={0: (100, 300)}, wait=300)
    for worker in (0, 1):
        file.worker(1, 70 + worker, cpu_share=0.9, seconds=12, states={"R": 12})
    f = only(file.host(12, process_cpus=2.0))
    assert (f.id, f.variant, f.params["kept_off"], f.cost_ns) == ("TP102", "all_cpus", 3_000_000, 600_000_000)


def test_oversubscription_abstains_where_waits_for_a_cpu_are_not_counted(make: Make) -> None:
    file = make(cpus="2", torch_threads="8").steps(100, compute=8.0).tier("run_delay", "off", "no schedstat")
    assert abstained(file, "TP602") == "run_delay off: no schedstat"
    assert abstained(make(torch_threads="1").steps(9, compute=8.0).tier("run_delay", "off", "no"), "TP602") == ""


def test_threads_beyond_the_containers_quota(make: Make) -> None:
    """torch counts the machine's CPUs, not the container's."""
    file = make(cpus="64", torch_threads="64", cpu_quota="4").steps(100, compute=8.0, throttled=4.0)
    f = only(file.host(3, process_cpus=4.0, throttled=300))
    assert (f.id, f.cause, f.variant, f.params["fewer"]) == ("TP602", "throttled", "threads", 4)
    assert f.params["have"] == Said("have_quota", {"cpus": 4, "one": False})
    small = make(cpus="64", torch_threads="1", cpu_quota="0.5").steps(100, compute=8.0, throttled=4.0)
    f = only(small.host(3, process_cpus=0.5, throttled=300))
    assert (f.id, f.params["threaded"]) == ("TP308", False), "one thread already: only a higher limit helps"


def competing(file: RunFile, *, others: float) -> RunFile:
    """A thread of the process is busy while the training thread waits for a CPU."""
    file.steps(400, compute=3.0, descheduled=5.0).host(3, process_cpus=1.2, other_cpus=others)
    at = file.stack(f"{TRAIN}:41 spin", "/usr/lib/python3.11/threading.py:982 Thread.run")
    file.detail("hold", 900, thread=file.thread("poller"), stack=at)
    return file.detail("hold", 950, thread=file.step_thread, stack=file.stack(f"{TRAIN}:9 step"))


def test_descheduled_by_a_thread_of_the_process_names_it(make: Make) -> None:
    f = only(competing(make(torch_threads="1"), others=0.1))
    assert (f.variant, f.params["led"], f.params["others"]) == ("own_polling", False, None)
    assert f.who == ("MainThread", "poller") and f.where == "train.py:41"
    assert (f.params["holder"], f.params["work"]) == (Said("named_thread", {"name": "poller"}), "spin")
    assert f.params["place"] == "spin (train.py:41)" and f.params["gil"] == pytest.approx(0.28, abs=0.005)
    both = only(competing(make(torch_threads="1"), others=0.6))
    assert (both.variant, both.params["led"]) == ("own_polling", False)
    assert both.params["others"] == pytest.approx(0.6, abs=0.05)
    most = only(competing(make(cpus="2", torch_threads="1"), others=1.2))
    assert (most.variant, most.params["led"]) == ("own_polling", True)


@pytest.mark.parametrize(("own", "others", "led"), [(1.0, 1.0, False), (0.8, 1.3, True)])
def test_a_thread_that_works_in_a_part_of_the_run_is_held_against_the_waits_there(
    make: Make, own: float, others: float, led: bool
) -> None:
    """Of the whole run it uses an eighth of a CPU, and where the training thread waits a half. What others use all
    along leaves the run the CPU that it needs, or does not."""
    file = make(cpus="2", torch_threads="1").steps(300, compute=10.0)
    file.steps(100, compute=10.0, descheduled=10.0).steps(300, compute=10.0)
    file.host(8, process_cpus=own, other_cpus=others)
    at = file.stack(f"{TRAIN}:41 spin", "/usr/lib/python3.11/threading.py:982 Thread.run")
    file.detail("hold", 900, thread=file.thread("poller"), stack=at)
    f = only(file)
    assert (f.id, f.params["led"], f.params["holder"].params["name"], f.by_others) == ("TP307", led, "poller", led)
    assert load_of(f)["own_threads"] == pytest.approx(own - 0.5, abs=0.05)


@pytest.mark.parametrize("phase", ["fetch", "forward", "validation"])
def test_torchs_threads_are_no_threads_of_the_runs_own_wherever_they_work(make: Make, phase: str) -> None:
    file = make(cpus="4", torch_threads="4").steps(300, {(phase, "native"): 10.0}, descheduled=3.0)
    f = next(f for f in said(file.host(4, process_cpus=2.0, other_cpus=2.0)).findings if f.id == "TP307")
    assert f.variant == "others", f


def test_torchs_threads_that_spin_after_an_operation_are_none_either(make: Make) -> None:
    used = [[7, "python", 1600], [8, "python", 1600], [9, "python", 1600]]
    file = make(cpus="4", torch_threads="4", thread_cpu=json.dumps({"native": used}), wall_ns=str(5_200_000_000))
    file.steps(400, compute=1.0, python=9.0, descheduled=3.0).host(5, process_cpus=1.7, other_cpus=2.2)
    f = next(f for f in said(file).findings if f.id == "TP307")
    assert f.variant == "others", f


def test_others_that_come_where_the_training_thread_waits_are_who_takes_the_cpus(make: Make) -> None:
    """For three of nine seconds: in the mean they use one CPU of four."""
    file = make(cpus="4", torch_threads="1").steps(300, compute=10.0)
    file.steps(150, compute=10.0, descheduled=10.0).steps(300, compute=10.0)
    file.host(9, process_cpus=0.8, other_cpus=lambda second: 3.2 * min(3, max(0, second - 3)), idle_cpus=2)
    f = only(file)
    assert f.variant.startswith("own") and f.params["led"] and f.by_others, f


THREADS = '{"python": [[1001, "MainThread", 900], [9, "poller", %d]], "native": [[7, "python", %d], [8, "python", %d]]}'


def with_threads(make: Make, python_ms: int, native_ms: int, *, torch_threads: int = 1, pools: str = "[]") -> RunFile:
    """Over a watch of 4 s."""
    used = THREADS % (python_ms, native_ms, native_ms)
    file = make(
        torch_threads=str(torch_threads),
        thread_cpu=used,
        thread_pools=f'{{"unlimited": {pools}}}',
        wall_ns=str(4 * 10**9),
    )
    return competing(file, others=0.1)


def test_native_threads_are_to_be_limited_and_not_to_sleep(make: Make) -> None:
    f = only(with_threads(make, 200, 2000))
    used = Said("native_use", {"count": 2, "cpus": pytest.approx(1.0), "several": True})
    assert (f.variant, f.params["own"], f.params["limits"]) == ("own_native", (used,), Said("limit_any"))
    assert f.params["place"] == "spin (train.py:41)"
    pools = '[["tokenizers", "TOKENIZERS_PARALLELISM=false"], ["numpy", "OPENBLAS_NUM_THREADS=1"], ["cv2", "cv2.x(0)"]]'
    known = only(with_threads(make, 200, 2000, pools=pools)).params["limits"]
    command = "TOKENIZERS_PARALLELISM=false OPENBLAS_NUM_THREADS=1 python train.py"
    names = ("tokenizers", "numpy", "cv2")
    assert known == Said("limit_pools", {"names": names, "command": command, "calls": "cv2.x(0)"})


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ('["python", "-m", "pkg.train", "--name", "a b"]', "python -m pkg.train --name 'a b'"),
        ('["torchrun", "...", "jobs/train.py"]', "torchrun ... jobs/train.py"),
        (f'["python", "{"x" * 200}.py"]', "python train.py"),
        ('["python", "a\\nb"]', "python train.py"),
        ('["python"]', "python train.py"),  # from a pipe
        ("{", "python train.py"),
    ],
)
def test_a_variable_is_set_before_the_command_that_started_it(make: Make, command: str, told: str) -> None:
    pools = '[["numpy", "OPENBLAS_NUM_THREADS=1"]]'
    fix = only(with_threads(make, 200, 2000, pools=pools).meta(command=command)).fix
    assert fix.endswith(f"\nOPENBLAS_NUM_THREADS=1 {told}"), fix


@pytest.mark.parametrize(
    "odd",
    ["5", "x{", '{"python": 3}', '{"python": [[1, 2]], "native": [3]}', '{"native": [[7, "a", 1%s]]}' % ("0" * 400)],
)
def test_what_else_may_stand_in_a_file_tells_nothing_of_threads(make: Make, odd: str) -> None:
    file = make(torch_threads="1", thread_cpu=odd, thread_pools=odd)
    assert only(competing(file, others=0.1)).variant == "own_polling"


def test_torchs_own_threads_are_not_to_be_limited(make: Make) -> None:
    """They are as many as torch was told, and are taken to be the busiest."""
    f = only(with_threads(make, 2000, 2000, torch_threads=3))
    (used,) = f.params["own"]
    assert f.variant == "own_polling" and used.key == "python_use" and used.params["names"] == ("poller",)


def test_a_thread_that_computes_without_the_gil_is_not_told_to_sleep(make: Make) -> None:
    assert only(with_threads(make, 2000, 0)).variant == "own_polling"  # it holds the GIL for half of that
    f = only(with_threads(make, 12_000, 0))
    assert f.variant == "own_computing" and f.params["own"][0].params["cpus"] == pytest.approx(3.0)


def test_the_little_time_between_the_last_readings_of_a_short_run_tells_of_nobody(make: Make) -> None:
    """There the training thread itself may have had a CPU all the time, and others too."""
    file = make(torch_threads="1").steps(400, compute=1.6, descheduled=1.07)
    f = only(file.host(1, first=1.0, every=0.06, process_cpus=1.0, other_cpus=1.2))
    assert (f.id, f.variant) == ("TP307", "too_short"), f
    half = make(torch_threads="1").steps(400, compute=1.6, descheduled=1.07)
    f = only(half.host(1, first=0.45, every=0.6, process_cpus=1.0, other_cpus=1.2))
    assert f.variant == "others"
    # Beside the training thread, even had it used a CPU throughout.
    sure = make(torch_threads="1").steps(400, compute=1.6, descheduled=1.07)
    assert only(sure.host(1, first=0.45, every=0.6, process_cpus=1.4)).variant.startswith("own")


@pytest.mark.parametrize(
    ("python_ms", "native_ms", "says"),
    [
        (0, 0, "beside_nothing"),
        (0, 0, "beside_unknown"),  # of a run that was killed processes that it started are not known
        (500, 0, "poller"),
        (0, 250, "beside_own"),  # a library's
    ],
)
def test_a_thread_of_the_runs_own_beside_others_is_said(make: Make, python_ms: int, native_ms: int, says: str) -> None:
    """In a part of the run it may be what the training thread waits for."""
    file = make(torch_threads="1", thread_cpu=THREADS % (python_ms, native_ms, native_ms), wall_ns=str(4 * 10**9))
    file.steps(400, compute=5.0, descheduled=3.0)
    if says != "beside_unknown":
        file.meta(children_cpu_before_ns="0", children_cpu_after_ns="0")
    at = file.stack(f"{TRAIN}:41 spin", "/usr/lib/python3.11/threading.py:982 Thread.run")
    file.detail("hold", 90, thread=file.thread("poller"), stack=at)
    f = only(file.host(3, process_cpus=0.63 + (python_ms + 2 * native_ms) / 4000, other_cpus=1.2))
    assert f.variant == "others", f
    beside = f.params["beside"]
    assert beside.key == ("beside_own" if says == "poller" else says)
    assert beside.params.get("holder") == (Said("named_thread", {"name": "poller"}) if says == "poller" else None)


def test_torchs_threads_are_not_own_threads_that_compete(make: Make) -> None:
    file = make(torch_threads="2").steps(400, compute=5.0, descheduled=3.0).host(3, process_cpus=1.2, other_cpus=0.8)
    assert only(file).variant == "others"


def test_torchs_threads_that_spin_are_no_own_threads_that_compete(make: Make) -> None:
    """For a while after each operation: they use more than the time in which the training thread computes."""
    cells = {("validation", "native"): 1.0, ("validation", "blocked"): 5.0, ("validation", "descheduled"): 2.0}
    file = make(torch_threads="2", cpus="2", thread_cpu=json.dumps({"native": [[7, "python", 2700]]}))
    file.steps(500, cells).host(4, process_cpus=1.0, other_cpus=0.2)
    assert "TP307" in (found := {f.id: f for f in said(file).findings})
    assert found["TP307"].variant == "unclear"


@pytest.mark.parametrize(
    ("cpus", "threads", "fix"),
    [
        ("2", "2", Said("room_threads", {"fewer": 1})),
        ("2", "1", Said("room_none")),
        ("3", "1", Said("room_cpus", {"command": "taskset -c 0-1 python train.py"})),
        ("16", "4", Said("room_cpus", {"command": "taskset -c 0-3 python train.py"})),
        ("8", "8", Said("room_threads", {"fewer": 6})),
    ],
)
def test_no_more_cpus_are_offered_than_there_are(make: Make, cpus: str, threads: str, fix: Said) -> None:
    file = make(cpus=cpus, torch_threads=threads).steps(100, compute=8.0, descheduled=3.0)
    assert only(file.host(3, process_cpus=0.8, other_cpus=1.6)).params["fix"] == fix


@pytest.mark.parametrize(("threads", "says"), [("1", "saves about 3.0 ms"), ("2", "saves 3.0 ms/step or more")])
def test_threads_that_share_an_operation_lose_more_than_is_told(make: Make, threads: str, says: str) -> None:
    file = make(cpus="2", torch_threads=threads).steps(100, compute=8.0, descheduled=3.0)
    with file.host(3, process_cpus=0.8, other_cpus=1.6).open() as run:
        (f,) = run.findings
        text = " ".join(console.summary(run).split())
    assert says in text, text
    assert ("set_num_threads(1)" in text) == (threads == "2")
    assert f.params["shared"] == (2 if threads == "2" else None)


@pytest.mark.parametrize("threads", ["1", "2"])
def test_fewer_torch_threads_are_offered_only_to_who_has_too_many(make: Make, threads: str) -> None:
    f = only(make(cpus="2", torch_threads=threads).steps(100, compute=8.0, descheduled=3.0))
    assert (f.id, f.variant, f.finds_out) == ("TP307", "too_short", True)


def test_without_run_delay_nothing_is_said_to_be_descheduled_and_blocked_is_less_sure(make: Make) -> None:
    file = make().steps(100, compute=8.0, blocked_io=3.0)
    file.detail("sample", 300, phase="other", state="blocked", stack=file.stack(f"{TRAIN}:9 wait"), code=202)
    assert only(file).confidence == "high"
    found = said(file.tier("run_delay", "off", "no schedstat"))
    assert ("TP307", "run_delay off: no schedstat") in [(a.id, a.why) for a in found.abstained]
    (blocked,) = [f for f in found.findings if f.id == "TP301"]
    assert blocked.confidence == "medium" and "no schedstat" in blocked.confidence_why


def test_causes_are_the_files_own_also_with_a_device(make: Make) -> None:
    """The tree and the verdict must not call the same time by two names."""
    file = (
        make(feeds_device="1").steps(100, compute=8.0).detail("sample", 800, phase="forward", state="native", count=20)
    )
    found = said(file)
    with file.open() as run:
        assert run.cause_ns("launch") == run.wall_ns
    assert found.verdict.text.startswith("launch-bound: 100% of step time is launch")


def test_throttled(make: Make) -> None:
    file = make().steps(100, compute=8.0, throttled=3.0).host(3, process_cpus=1.0, throttled=300)
    f = only(file)
    assert f.id == "TP308" and f.params["used"] == pytest.approx(1.0)
    off = make().steps(100, compute=8.0).tier("throttling", "off", "no cgroup")
    assert next(a.why for a in said(off).abstained if a.id == "TP308").endswith("no cgroup")


def test_time_in_which_the_process_was_stopped_is_not_what_others_took(make: Make) -> None:
    file = make(cpus="2", torch_threads="1").steps(100, compute=8.0, descheduled=3.0)
    file.host(3, process_cpus=0.8, other_cpus=1.6).meta(stopped_ns=str(100_000_000))
    assert only(file).cost_ns == pytest.approx(200_000_000, rel=0.01)
    whole = make(cpus="2", torch_threads="1").steps(100, compute=8.0, descheduled=3.0)
    assert loud(whole.host(3, process_cpus=0.8, other_cpus=1.6).meta(stopped_ns=str(310_000_000))) == []


def test_a_stop_is_no_wait_for_a_cpu_that_a_finding_lacks(make: Make) -> None:
    file = make().steps(100, compute=4.0, python=4.0, descheduled=3.0).meta(stopped_ns=str(300_000_000))
    file.detail("sample", 400, state="python", stack=file.stack(f"{TRAIN}:60 count_tokens"))
    assert not only(file).waits_apart and "waits for a CPU" not in "".join(only(file).evidence)
    busy = make().steps(100, compute=4.0, python=4.0, descheduled=3.0).meta(stopped_ns=str(150_000_000))
    busy.detail("sample", 400, state="python", stack=busy.stack(f"{TRAIN}:60 count_tokens"))
    f = next(f for f in said(busy).findings if f.id == "TP302")
    assert f.waits_apart and "its waits for a CPU are excluded: 14% of the run, reported separately" in f.evidence
