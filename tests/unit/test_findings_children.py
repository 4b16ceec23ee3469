"""Processes that the run started beside workers: who they are, and how findings name them and their line."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from runfiles import RunFile
from trainperf.findings import children
from trainperf.findings.facts import Facts
from trainperf.findings.model import Finding, Said
from trainperf.report.details.children import child_rows
from verdicts import TRAIN, Make, hook, lightning, only, said

STDLIB = "/usr/lib/python3.11"
PROCESS = (f"{STDLIB}/multiprocessing/process.py:108 BaseProcess.run", f"{TRAIN}:99 main")  # forked: main's own frame
POOL = (f"{STDLIB}/multiprocessing/pool.py:48 mapstar", f"{STDLIB}/multiprocessing/pool.py:125 worker", *PROCESS)
POOLS_IDLE = (
    f"{STDLIB}/multiprocessing/queues.py:365 SimpleQueue.get",
    f"{STDLIB}/multiprocessing/pool.py:114 worker",
    *PROCESS,
)
EXECUTOR = (f"{STDLIB}/concurrent/futures/process.py:263 _process_worker", *PROCESS)
LOKY = ("/venv/lib/python3.11/site-packages/joblib/externals/loky/process_executor.py:490 _process_worker", *PROCESS)
STARTS = ("<frozen-importlib._bootstrap>:1176 _find_and_load", f"{STDLIB}/multiprocessing/spawn.py:131 _main")
GET = (f"{STDLIB}/multiprocessing/pool.py:768 ApplyResult.get", f"{TRAIN}:50 main")
SECONDS = 10
READ, NANOSLEEP = 0, 230  # x86-64


def busy(make: Make, children_cpus: float, *, cpus: int = 2, **of_steps: float) -> RunFile:
    """Ten seconds in which children used so many CPUs."""
    file = make(cpus=str(cpus), torch_threads="1", wall_ns=str(SECONDS * 10**9), machine="x86_64")
    file.steps(100, **of_steps)
    file.meta(children_cpu_before_ns="0", children_cpu_after_ns=str(round(children_cpus * SECONDS * 1e9)))
    return file.host(
        SECONDS, process_cpus=0.3, other_cpus=children_cpus, idle_cpus=max(0.0, cpus - 0.3 - children_cpus)
    )


def pool(
    file: RunFile, *frames: str, cpus: float, count: int = 4, samples: int = 400, body: Sequence[str] = POOL
) -> RunFile:
    """Of so many processes that use `cpus` together; each has idle samples as well."""
    for i in range(count):
        child = file.child(
            70 + i, cpus=cpus / count, seconds=SECONDS, name=f"ForkPoolWorker-{i + 1}", command="python train.py"
        )
        file.within(child, round(0.82 * samples / count), f"{TRAIN}:31 augment", *frames, *body, state="python")
        file.within(child, round(0.18 * samples / count), f"{TRAIN}:80 encode", *frames, *body)
        file.within(child, 20, *POOLS_IDLE, state="blocked", call=READ)
    return file


def waits_for_cpu(make: Make, **options: float) -> RunFile:
    return pool(busy(make, 1.6, compute=60.0, descheduled=40.0), cpus=1.6, **options)  # type: ignore[arg-type]


def found(file: RunFile) -> list[children.Group]:
    with file.open() as run:
        return list(children.groups(Facts(run)))


def test_who_takes_the_cpus_is_named_with_its_line(make: Make) -> None:
    f = only(waits_for_cpu(make))
    assert (f.id, f.variant, f.where) == ("TP307", "children", "train.py:31")
    assert f.why == "4 processes of multiprocessing.Pool use 1.6 CPUs, 82% of it in augment (train.py:31)"


def test_of_several_kinds_each_has_a_line(make: Make) -> None:
    file = waits_for_cpu(make)
    file.child(90, cpus=0.4, seconds=SECONDS, command="ffmpeg")
    file.child(91, cpus=0.01, seconds=SECONDS, command="python multiprocessing.resource_tracker")
    f = only(file)
    assert "'ffmpeg' uses 0.4 CPUs" in f.evidence and not any("tracker" in line for line in f.evidence)


@pytest.mark.parametrize("samples", [0, 40])
def test_few_samples_name_no_line(make: Make, samples: int) -> None:
    f = only(waits_for_cpu(make, samples=samples))
    assert f.why == "4 processes of multiprocessing.Pool use 1.6 CPUs" and not f.where


def test_what_other_threads_of_theirs_compute_is_not_put_on_the_main_threads_line(make: Make) -> None:
    file = busy(make, 1.6, compute=60.0, descheduled=40.0)
    child = file.child(70, cpus=1.6, seconds=SECONDS, name="decoder")
    file.within(child, 100, f"{TRAIN}:31 decode", *PROCESS)
    file.within(child, 900, f"{TRAIN}:33 decode", *PROCESS, state="blocked", call=READ)
    assert only(file).why == "process 'decoder' uses 1.6 CPUs"


def test_those_that_use_little_of_it_do_not_lead(make: Make) -> None:
    f = only(pool(busy(make, 1.6, compute=60.0, descheduled=40.0), cpus=0.6))
    assert f.why == "child processes use 1.6 CPUs"
    assert "4 processes of multiprocessing.Pool use 0.6 CPUs, 82% of it in augment (train.py:31)" in f.evidence


def test_other_ranks_are_not_named(make: Make) -> None:
    file = busy(make, 1.6, compute=60.0, descheduled=40.0).meta(
        argv='["train.py"]', local_world_size="2", world_size="2"
    )
    file.child(70, cpus=1.6, seconds=SECONDS, command="python train.py")
    assert found(file) == []


def test_beside_other_programs_the_line_is_named_too(make: Make) -> None:
    file = make(cpus="2", torch_threads="1", wall_ns=str(SECONDS * 10**9)).steps(100, compute=60.0, descheduled=40.0)
    file.meta(children_cpu_before_ns="0", children_cpu_after_ns=str(7 * 10**9))
    f = only(pool(file.host(SECONDS, process_cpus=0.3, other_cpus=1.7), cpus=0.7))
    assert (f.variant, f.where) == ("both", "train.py:31")


# a wait for them


def waits_for_pool(make: Make, cpus: int = 2, frame: Sequence[str] = GET) -> RunFile:
    file = busy(make, 1.6, cpus=cpus, blocked_io=80.0, compute=20.0)
    return file.detail("sample", 8000, phase="other", state="blocked", stack=file.stack(*frame), code=202)


def another(file: RunFile, pid: int, **child: float) -> int:
    """A process of a pool."""
    return file.child(pid, name=f"ForkPoolWorker-{pid}", **child)  # type: ignore[arg-type]


def todo(f: Finding) -> Said:
    said = f.params["todo"]
    assert isinstance(said, Said)
    return said


def test_who_waits_for_a_pool_is_told_the_line_that_it_runs(make: Make) -> None:
    f = only(pool(waits_for_pool(make), cpus=1.6))
    assert (f.id, f.variant, f.where) == ("TP301", "future", "train.py:50")
    told = "4 processes of multiprocessing.Pool spend 82% of their work in augment (train.py:31): CPU 100%; 52% of "
    assert f"{told}what is CPU here is waiting for a free one" in f.evidence
    assert todo(f).key == "make_cheaper" and f.fix.startswith("# make augment cheaper, or do it once")


def test_a_callback_that_waits_for_a_pool_names_what_it_runs(make: Make) -> None:
    file = pool(busy(lambda **meta: lightning(make).meta(**meta), 1.6, compute=20.0, blocked_io=80.0), cpus=1.6)
    file.object(1, "callback", **{"class": "Crops", "module": "app", "hooks": {"on_train_batch_end": hook(8000)}})
    stack = file.stack(*GET[:-1], f"{TRAIN}:42 Crops.on_train_batch_end")
    file.detail("sample", 8000, phase="other", state="blocked", stack=stack, code=202)
    f = only(file)
    assert (f.id, f.variant) == ("TP701", "waits")
    assert any("multiprocessing.Pool spend 82% of their work in augment (train.py:31)" in line for line in f.evidence)


def test_where_cpus_are_free_more_of_them_is_the_other_way(make: Make) -> None:
    f = only(pool(waits_for_pool(make, cpus=8), cpus=1.6))
    assert todo(f).key == "more_if_free" and f.fix.startswith("# make augment cheaper, or give the pool more workers")
    assert f.fix.endswith("6.1 CPUs are free")


@pytest.mark.parametrize("cpus", [2, 8])
def test_more_of_those_that_wait_need_no_cpus(make: Make, cpus: int) -> None:
    """What else computes leaves none of two free, or six of eight."""
    file = waits_for_pool(make, cpus=cpus)
    for pid in (70, 71):
        file.within(
            another(file, pid, cpus=0.02, seconds=SECONDS),
            300,
            f"{TRAIN}:31 fetch",
            *POOL,
            state="blocked",
            call=NANOSLEEP,
        )
    f = only(file)
    assert (todo(f).key, f.params.get("no_room")) == ("more_of_waiting", None)
    assert f.fix.startswith("# give the pool more workers") and "fetch mostly waits" in f.fix and "cheaper" not in f.fix


def test_what_other_programs_take_from_the_start_of_a_pool_is_none_of_what_its_tasks_wait_for(make: Make) -> None:
    file = make(cpus="2", torch_threads="1", wall_ns=str(SECONDS * 10**9), machine="x86_64")
    file.steps(100, blocked_io=80.0, compute=20.0).host(SECONDS, process_cpus=0.1, other_cpus=1.9)
    file.detail("sample", 8000, phase="other", state="blocked", stack=file.stack(*GET), code=202)
    child = another(file, 70, cpus=0.2, seconds=SECONDS)
    file.within(child, 200, *STARTS).within(child, 100, f"{TRAIN}:31 fetch", *POOL, state="blocked", call=NANOSLEEP)
    f = only(file)
    assert (todo(f).key, f.fix_share) == ("more_of_waiting", 1.0)
    assert not any("waiting for a free one" in e for e in f.evidence)


def test_what_other_programs_take_from_a_pool_is_told_and_what_stopping_them_saves(make: Make) -> None:
    """Two processes that would use two CPUs get half of one."""
    file = make(cpus="2", torch_threads="1", wall_ns=str(SECONDS * 10**9), machine="x86_64")
    file.steps(100, blocked_io=80.0, compute=20.0).meta(
        children_cpu_before_ns="0", children_cpu_after_ns=str(5 * 10**9)
    )
    file.detail("sample", 8000, phase="other", state="blocked", stack=file.stack(*GET), code=202)
    f = only(pool(file.host(SECONDS, process_cpus=0.1, other_cpus=1.9), cpus=0.5, count=2))
    assert f.fix.startswith("# stop the other programs, which use 1.4 CPUs\n# make augment cheaper")
    assert "child processes use 0.5 of 2 CPUs meanwhile, this process 0.1, others 1.4" in f.why
    without = 1 - 0.25 * 220 / 200  # each computes in 200 of its 220 samples, and has a quarter of a CPU
    assert f.fix_share == pytest.approx(without, abs=0.01)
    assert any("; 73% of what is CPU here" in e for e in f.evidence)


def test_a_wait_for_threads_is_not_put_on_processes(make: Make) -> None:
    """The futures of a ThreadPoolExecutor, while a Pool works too."""
    future = (f"{STDLIB}/concurrent/futures/_base.py:451 Future.result", f"{TRAIN}:50 main")
    f = only(pool(waits_for_pool(make, frame=future), cpus=1.6))
    assert f.variant == "future" and f.params["helpers"] == ()


def test_a_pool_that_waits_is_told_for_what(make: Make) -> None:
    file = waits_for_pool(make)
    child = file.child(70, cpus=0.02, seconds=SECONDS, name="ForkPoolWorker-1")
    file.within(child, 300, f"{TRAIN}:31 fetch", *POOL, state="blocked", call=NANOSLEEP)
    f = only(file)
    assert (
        "1 process of multiprocessing.Pool spends 100% of its work in fetch (train.py:31): sleeping 100%" in f.evidence
    )


def test_a_ray_actor_that_is_waited_for(make: Make) -> None:
    ray = "/venv/lib/python3.11/site-packages/ray/_private/worker.py"
    file = waits_for_pool(make, frame=(f"{ray}:1007 Worker.get_objects", f"{ray}:2858 get", f"{TRAIN}:50 main"))
    child = file.child(70, cpus=0.9, seconds=SECONDS, command="ray::Env.step")
    file.within(
        child, 300, f"{TRAIN}:31 Env.step", f"{ray}:1069 Worker.main_loop", "/venv/ray/default_worker.py:9 <module>"
    )
    file.within(
        child, 20, f"{ray}:1069 Worker.main_loop", "/venv/ray/default_worker.py:9 <module>", state="blocked", call=232
    )
    f = only(file)
    assert f.variant == "future" and any(
        "1 process of Ray spends 100% of its work in Env.step (train.py:31)" in e for e in f.evidence
    )


def test_a_dataset_that_waits_for_a_pool_is_told_the_line_that_it_runs(make: Make) -> None:
    file = busy(make, 1.6, data_wait=80.0, compute=20.0)
    file.loader(1, fetches=100, wait=8000, num_workers=0, dataset="Frames", kind="map")
    item = (
        GET[0],
        f"{TRAIN}:9 Frames.__getitem__",
        "/venv/lib/python3.11/site-packages/torch/utils/data/_utils/fetch.py:52 _MapDatasetFetcher.fetch",
        f"{TRAIN}:50 main",
    )
    file.detail("sample", 8000, phase="fetch", state="blocked", stack=file.stack(*item), code=202)
    f = only(pool(file, cpus=1.6))
    assert (f.id, f.where) == ("TP101", "train.py:9")
    told = "4 processes of multiprocessing.Pool spend 82% of their work in augment (train.py:31): CPU 100%; 52% of "
    assert f"{told}what is CPU here is waiting for a free one" in f.evidence
    assert f.fix.startswith("# make augment cheaper") and "num_workers" not in f.fix


def test_a_process_at_the_other_end_of_a_pipe(make: Make) -> None:
    pipe = (f"{STDLIB}/multiprocessing/connection.py:250 _ConnectionBase.recv", f"{TRAIN}:50 main")
    file = busy(make, 0.9, blocked_io=80.0, compute=20.0)
    file.detail("sample", 8000, phase="other", state="blocked", stack=file.stack(*pipe), code=0)
    child = file.child(70, cpus=0.9, seconds=SECONDS, name="actor")
    file.within(child, 300, "/venv/lib/python3.11/site-packages/PIL/Image.py:3400 open", f"{TRAIN}:31 serve", *PROCESS)
    f = only(file)
    told = "process 'actor' spends 100% of its work in PIL.Image.open, called at serve (train.py:31)"
    assert any(told in e for e in f.evidence)


# who they are


@pytest.mark.parametrize(
    ("body", "name", "called"),
    [
        (POOL, "SpawnPoolWorker-12", "multiprocessing.Pool"),
        (EXECUTOR, "ForkProcess-3", "ProcessPoolExecutor"),
        (LOKY, "LokyProcess-1", "joblib"),
        (PROCESS, "Process-3", "Process"),
        (PROCESS, "reader-2:1", "reader"),
        (PROCESS, "", "python serve.py"),
    ],
)
def test_a_process_is_named_by_what_started_it(make: Make, body: Sequence[str], name: str, called: str) -> None:
    file = busy(make, 0.5, compute=100.0)
    for pid in (70, 71):
        child = file.child(pid, cpus=0.2, seconds=SECONDS, name=name, command="python serve.py")
        file.within(child, 60, f"{TRAIN}:31 work", *body)
    (group,) = found(file)
    assert (group.called, group.count, group.busy) == (called, 2, 120)
    assert [line.frame.function for line in group.lines] == ["work"]


def test_processes_one_after_the_other_are_one_at_a_time(make: Make) -> None:
    file = busy(make, 0.5, compute=100.0)
    for i in range(5):
        file.child(70 + i, cpus=1.0, seconds=0.5, first=2.0 * i, command="ffmpeg")
    (group,) = found(file)
    assert group.count == 1 and group.cpus == pytest.approx(2.5 / 8.5) and group.mean_cpus == pytest.approx(0.25)


def test_what_brief_processes_use_is_known_in_part(make: Make) -> None:
    """One for each step, of which the looks meet a few in the middle of their lives."""
    wait = (f"{STDLIB}/subprocess.py:1264 Popen.wait", f"{TRAIN}:50 main")
    file = busy(make, 0.9, blocked_io=90.0, compute=10.0)
    file.detail("sample", 9000, phase="other", state="blocked", stack=file.stack(*wait), code=61)
    for i in range(10):
        file.child(70 + i, cpus=0.9, seconds=0.1, first=float(i), command="ffmpeg")
    (group,) = found(file)
    assert (group.count, group.or_more) == (1, True)
    f = only(file)
    assert f.variant == "process" and "'ffmpeg' uses 0.1 CPUs or more" in f.evidence


def test_what_a_pools_process_does_as_it_starts_is_none_of_its_work(make: Make) -> None:
    file = pool(busy(make, 1.6, compute=100.0), cpus=1.6, count=1)
    file.within(1, 300, *STARTS)
    (group,) = found(file)
    assert group.busy == 400 and group.samples == 720 and group.idle == 20


def test_processes_of_a_second_pool_that_gets_no_work_are_none_of_the_first(make: Make) -> None:
    file = pool(waits_for_pool(make), cpus=1.6, count=2)
    for pid in (80, 81, 82):
        child = another(file, pid, cpus=0.1, seconds=SECONDS)
        file.within(child, 20, *STARTS).within(child, 180, *POOLS_IDLE, state="blocked", call=READ)
    work, rest = found(file)
    assert (work.count, work.resting, work.rests) == (2, 3, False) and (rest.count, rest.rests, rest.starts) == (
        3,
        True,
        True,
    )
    told = (
        "2 processes of multiprocessing.Pool (3 more idle) spend 82% of their work in augment (train.py:31): CPU 100%"
    )
    assert any(e.startswith(told) for e in only(file).evidence)


def test_a_pool_that_starts_while_training_waits_for_a_cpu(make: Make) -> None:
    """Three processes import for two seconds, and then wait for work that never comes."""
    file = make(cpus="2", torch_threads="1", wall_ns=str(SECONDS * 10**9))
    file.meta(children_cpu_before_ns="0", children_cpu_after_ns=str(3 * 10**9))
    file.steps(100, compute=10.0, descheduled=10.0).steps(800, compute=10.0)
    for pid in (70, 71, 72):
        child = another(file, pid, cpus=0.1, seconds=SECONDS)
        file.within(child, 20, *STARTS).within(child, 80, *POOLS_IDLE, state="blocked", call=READ)
    file.host(SECONDS, process_cpus=lambda s: s - 0.5 * min(2, s), other_cpus=lambda s: 1.5 * min(2, s), idle_cpus=0.8)
    f = next(f for f in said(file).findings if f.id == "TP307")
    assert (f.variant, f.why) == (
        "children_start",
        "3 processes of multiprocessing.Pool use 3.0 s of CPU time, most of it as they start",
    )


def test_the_report_has_a_row_for_each_kind(make: Make) -> None:
    file = pool(busy(make, 1.6, compute=100.0), cpus=1.6)
    file.child(90, cpus=0.4, seconds=SECONDS, command="ffmpeg")
    file.child(91, cpus=0.0, seconds=SECONDS, name="SyncManager-1")
    with file.open() as run:
        (first, second), more = child_rows(Facts(run))
    assert (first.name, first.count, first.cpus, more) == ("multiprocessing.Pool", 4, pytest.approx(1.6), 0)
    assert first.idle == pytest.approx(80 / 480)
    assert [(row.place, row.share, row.spent) for row in first.lines] == [
        ("augment (train.py:31)", 0.82, "CPU 100%"),
        ("encode (train.py:80)", 0.18, "CPU 100%"),
    ]
    assert (second.name, second.count, second.idle, second.lines) == ("ffmpeg", 1, None, ())
