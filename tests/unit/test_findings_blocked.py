"""TP301, a loop that is blocked, on runs made by hand: what it must say, and when it must be silent."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from runfiles import RunFile
from trainperf.findings import engine
from trainperf.findings.model import Finding, Params, Said
from verdicts import LINUX, TRAIN, Make, only, said

EVENT_LOOP = (
    "/usr/lib/python3.11/selectors.py:468 EpollSelector.select",
    "/usr/lib/python3.11/asyncio/base_events.py:1884 BaseEventLoop._run_once",
    "/usr/lib/python3.11/asyncio/base_events.py:640 BaseEventLoop.run_until_complete",
    "/usr/lib/python3.11/asyncio/runners.py:190 run",
)
CONNECTION = "/usr/lib/python3.11/multiprocessing/connection.py"
PIPE = (f"{CONNECTION}:378 Connection._recv", f"{CONNECTION}:250 _ConnectionBase.recv")
QUEUE_GET = "/usr/lib/python3.11/multiprocessing/queues.py:103 Queue.get"
FUTURE = "/usr/lib/python3.11/concurrent/futures/_base.py:451 Future.result"
SELECTOR = "/usr/lib/python3.11/selectors.py:415 _PollLikeSelector.select"

JOINED = tuple(
    f"/usr/lib/python3.11/threading.py:{f}" for f in ("1139 Thread._wait_for_tstate_lock", "1119 Thread.join")
)


def rows(f: Finding, name: str) -> list[Params]:
    found = f.params[name]
    assert isinstance(found, tuple)
    return [row for row in found if isinstance(row, Mapping)]


def named(thread: str) -> Said:
    return Said("named_thread", {"name": thread})


def beside(f: Finding) -> list[Params]:
    return rows(f, "beside")


def places(f: Finding) -> list[object]:
    return [row["place"] for row in rows(f, "spots")]


@pytest.mark.parametrize(
    ("code", "frames", "variant", "call"),
    [
        (230, (f"{TRAIN}:30 pause",), "sleep", "clock_nanosleep"),
        (202, (f"{TRAIN}:31 wait_for_lock",), "lock", "futex"),
        (202, ("/usr/lib/python3.11/threading.py:327 Condition.wait", f"{TRAIN}:31 wait"), "signal", "futex"),
        (202, (*JOINED, f"{TRAIN}:32 flush"), "thread_end", "futex"),
        (202, ("/usr/lib/python3.11/queue.py:171 Queue.get", f"{TRAIN}:32 next_batch"), "queue", "futex"),
        (0, (QUEUE_GET, f"{TRAIN}:39 next_batch"), "queue", "read"),
        (202, ("/usr/lib/python3.11/queue.py:140 Queue.put", f"{TRAIN}:40 log"), "full_queue", "futex"),
        (0, (*PIPE, f"{TRAIN}:45 step"), "pipe", "read"),
        (7, (SELECTOR, f"{CONNECTION}:947 wait", f"{TRAIN}:46 step"), "pipe", "poll"),
        (1, (f"{CONNECTION}:206 _ConnectionBase.send", f"{TRAIN}:47 step"), "full_pipe", "write"),
        (0, (*PIPE, QUEUE_GET, f"{TRAIN}:48 next_batch"), "queue", "read"),
        (43, (f"{CONNECTION}:463 Listener.accept", f"{TRAIN}:49 serve"), "socket", "accept"),
        (202, (FUTURE, f"{TRAIN}:41 next_batch"), "future", "futex"),
        (45, ("/usr/lib/python3.11/socket.py:706 SocketIO.readinto", f"{TRAIN}:33 send"), "socket", "recvfrom"),
        (0, (f"{TRAIN}:34 read",), "file", "read"),
        (257, (f"{TRAIN}:34 read",), "file", "openat"),
        (74, (f"{TRAIN}:34 flush",), "written_file", "fsync"),
        (1, (f"{TRAIN}:37 report",), "written_file", "write"),
        (61, ("/usr/lib/python3.11/subprocess.py:2011 Popen._try_wait", f"{TRAIN}:35 git"), "process", "wait4"),
        (7, ("/usr/lib/python3.11/subprocess.py:2021 Popen._communicate", f"{TRAIN}:36 git"), "process", "poll"),
        (7, (f"{TRAIN}:38 listen",), "socket", "poll"),
        (232, (*EVENT_LOOP, f"{TRAIN}:42 main"), "event_loop", "epoll_wait"),
        # A coroutine that blocks the event loop by itself.
        (230, (f"{TRAIN}:44 fetch", *EVENT_LOOP[1:], f"{TRAIN}:44 main"), "sleep", "clock_nanosleep"),
    ],
)
def test_blocked_says_in_what(make: Make, code: int, frames: tuple[str, ...], variant: str, call: str) -> None:
    file = make().steps(100, compute=8.0, blocked_io=4.0)
    file.detail("sample", 390, phase="other", state="blocked", code=code, stack=file.stack(*frames))
    f = only(file)
    assert (f.id, f.variant, f.params["call"]) == ("TP301", variant, call)
    assert f.where == f"train.py:{frames[-1].split(':')[1].split()[0]}"
    assert f.params["or_pipe"] == (call in ("read", "write")) and f.params["opened"] == (call == "openat")
    assert f.claims == {("other", "blocked"): 400_000_000}


@pytest.mark.parametrize(
    ("frame", "steps", "variant", "more"),
    [
        ("queue.py:171 Queue.get", 100, "queue", "more_queue"),
        ("multiprocessing/queues.py:103 Queue.get", 100, "queue", "more_queue"),
        ("queue.py:171 Queue.get", 20, "queue_at_times", ""),
        ("queue.py:140 Queue.put", 100, "full_queue", ""),
        ("multiprocessing/connection.py:250 _ConnectionBase.recv", 100, "pipe", "more_pipe"),
        ("multiprocessing/connection.py:206 _ConnectionBase.send", 100, "full_pipe", ""),
        ("concurrent/futures/_base.py:451 Future.result", 100, "future", "more_future"),
        ("multiprocessing/pool.py:768 ApplyResult.get", 100, "future", "more_future"),
    ],
)
def test_more_producers_where_cpus_are_free(make: Make, frame: str, steps: int, variant: str, more: str) -> None:
    file = make(cpus="4").steps(steps, compute=2.0, blocked_io=600 / steps)
    if steps < 100:
        file.steps(100 - steps, compute=2.0)
    file.host(3, process_cpus=1.0, other_cpus=0.2, idle_cpus=2.8)
    at = file.stack(f"/usr/lib/python3.11/{frame}", f"{TRAIN}:32 next_batch")
    file.detail("sample", 590, phase="other", state="blocked", code=202, stack=at)
    f = only(file)
    assert (f.id, f.variant) == ("TP301", variant)
    free = Said("more_if_free", {"more": Said(more), "threads": variant != "pipe"})
    assert f.params.get("todo") == (free if more else None)


def pool(make: Make, frame: str = "concurrent/futures/_base.py:451 Future.result", **meta: str) -> RunFile:
    """A loop that waits for a future most of three seconds."""
    file = make(**{"cpus": "2", "torch_threads": "1"} | meta).steps(300, compute=2.0, blocked_io=8.0)
    at = file.stack(f"/usr/lib/python3.11/{frame}", f"{TRAIN}:32 next_batch")
    return file.detail("sample", 2300, phase="other", state="blocked", code=202, stack=at)


LIBRARY = "/x/lib/python3.11/site-packages/numpy/linalg/_linalg.py:1841 svd"


def at_work(file: RunFile, threads: int, *frames: str) -> RunFile:
    for i in range(threads):
        stack = file.stack(*frames, f"{TRAIN}:50 decode")
        file.detail("beside", 2200, phase="other", thread=file.thread(f"pool-{i}"), stack=stack, code=WORKS)
    return file


def todo(f: Finding) -> str:
    said = f.params["todo"]
    assert f.id == "TP301" and isinstance(said, Said)
    return said.key


def computing(f: Finding) -> Params:
    said = f.params["computing"]
    assert isinstance(said, Said) and f.params["no_room"]
    return said.params


def test_more_workers_are_not_advised_where_the_pool_has_all_cpus(make: Make) -> None:
    f = only(at_work(pool(make), 4, LIBRARY).host(3, process_cpus=1.9, other_cpus=0.1))
    shares = {"used": 1.7, "rest": 0.2, "others": 0.1}  # they add up to the CPUs
    assert f.params["todo"] == Said("make_cheaper", {"libraries": True}), f
    assert computing(f)["who"] == ("threads",)
    assert {k: computing(f)[k] for k in shares} == pytest.approx(shares, abs=0.05)
    assert f.params["room"] == Said("have_cpus", {"cpus": 2})
    own_code = only(at_work(pool(make), 4).host(3, process_cpus=1.9, other_cpus=0.1))
    assert own_code.params["todo"] == Said("make_cheaper", {"libraries": False})
    shared = only(at_work(pool(make), 4, LIBRARY).host(3, process_cpus=0.9, other_cpus=1.1))  # 4 at work on 2 CPUs
    assert shared.params["todo"] == Said("make_cheaper", {"libraries": True}) and computing(shared)["who"] == (
        "threads",
    )


@pytest.mark.parametrize(
    "frame",
    [
        "multiprocessing/pool.py:768 ApplyResult.get",
        "multiprocessing/queues.py:103 get",
        "multiprocessing/connection.py:250 _ConnectionBase.recv",
    ],
)
def test_processes_that_have_all_cpus_are_not_to_be_more(make: Make, frame: str) -> None:
    file = pool(make, frame, wall_ns=str(3 * 10**9), children_cpu_before_ns="0", children_cpu_after_ns=str(45 * 10**8))
    f = only(file.host(3, process_cpus=0.25, other_cpus=1.5, idle_cpus=0.25))
    assert f.params["todo"] == Said("make_cheaper", {"libraries": False}), f
    assert computing(f)["who"] == ("child processes",) and computing(f)["others"] is None
    assert (computing(f)["used"], computing(f)["rest"]) == pytest.approx((1.5, 0.25), abs=0.05)


def test_more_workers_only_where_cpus_are_known_to_be_free(make: Make) -> None:
    assert todo(only(pool(make))) == "more_if_known"
    taken = only(pool(make).host(3, process_cpus=0.3, other_cpus=1.7))
    assert todo(taken) == "more_if_waiting" and "computing" not in taken.params
    load = taken.params["load"]
    assert isinstance(load, Said) and (load.params["own"], load.params["others"]) == pytest.approx((0.3, 1.7))
    # 2 of 8 CPUs: whether others were on these two is not known.
    assert todo(only(pool(make).host(3, process_cpus=0.3, other_cpus=3.0, idle_cpus=4.7))) == "more_if_known"
    free = only(pool(make, cpus="4").host(3, process_cpus=0.3, other_cpus=1.0, idle_cpus=2.7))
    assert todo(free) == "more_if_free"
    quota = only(at_work(pool(make, cpus="8", cpu_quota="2"), 2).host(3, process_cpus=1.9, idle_cpus=6.1))
    assert quota.params["room"] == Said("have_quota", {"cpus": 2.0, "one": False}) and todo(quota) == "make_cheaper"


def test_a_queue_that_a_background_loader_feeds(make: Make) -> None:
    file = make().steps(100, compute=2.0, blocked_io=6.0)
    at = file.stack("/usr/lib/python3.11/queue.py:171 Queue.get", f"{TRAIN}:32 next_batch")
    file.detail("sample", 590, phase="other", state="blocked", code=202, stack=at)
    file.loader(1, off_thread=(100, 780), dataset="Slow", dataset_at=f"{TRAIN}:17")
    f = only(file)
    assert (f.id, f.variant, todo(f)) == ("TP301", "background_loader", "with_workers")
    assert (f.params["dataset"], f.params["dataset_at"], f.params["batch"]) == ("Slow", "train.py:17", 7_800_000)


@pytest.mark.parametrize(("share", "workers"), [(0.03, 8), (0.97, None)], ids=["wait", "compute"])
def test_a_background_loader_that_has_workers_already(make: Make, share: float, workers: int | None) -> None:
    file = make(cpus="2").steps(100, compute=2.0, blocked_io=6.0)
    at = file.stack("/usr/lib/python3.11/queue.py:171 Queue.get", f"{TRAIN}:32 next_batch")
    file.detail("sample", 590, phase="other", state="blocked", code=202, stack=at)
    file.loader(1, off_thread=(100, 780), dataset="Slow", dataset_at=f"{TRAIN}:17", num_workers=2)
    for pid in (71, 72):
        file.worker(1, pid, cpu_share=share, seconds=20, states={"R" if share > 0.5 else "S": 20})
    f = only(file)
    assert todo(f) == ("with_workers" if workers else "background_no_room")
    assert workers is None or f"num_workers={workers}" in f.fix


def test_ranks_that_wait_for_each_other_without_a_gpu(make: Make) -> None:
    cells = {("backward", "blocked"): 4.0, ("backward", "native"): 4.0, ("other", "python"): 2.0}
    exchange = "/x/site-packages/torch/autograd/graph.py:829 _engine_run_backward"
    train = f"{TRAIN}:31 train"
    job = {"world_size": "2", "process_group": "1"}
    for meta, stack, ranks in (
        (job, (exchange, train), True),
        ({**job, "world_size": "1"}, (exchange, train), False),
        ({"world_size": "2"}, (exchange, train), False),  # two programs of one launcher that exchange nothing
        (job, (f"{TRAIN}:9 my_hook", exchange, train), False),  # a lock of the user's own
        ({**job, "feeds_device": "1"}, (exchange, train), False),  # it sleeps while autograd's thread works
    ):
        file = make().meta(**meta).steps(100, cells)
        file.detail("sample", 390, phase="backward", state="blocked", code=202, stack=file.stack(*stack))
        f = next(f for f in said(file).findings if f.id == "TP301")
        assert (f.variant, f.finds_out) == (("ranks", True) if ranks else ("lock", False)), meta
        # Once all ranks' files were read side by side, there is nothing to find out.
        for standing, variant in (("even", "even_ranks"), ("late", "late_ranks")):
            with file.open() as run:
                told = next(f for f in engine.find(run, standing=standing).findings if f.id == "TP301")
            assert told.variant == (variant if ranks else "lock") and ("ddp" in told.params) == ranks, meta


def test_of_two_places_each_is_told_and_the_fix_of_one_saves_its_own(make: Make) -> None:
    file = make().steps(100, {("other", "blocked"): 9.0}, compute=2.0)
    for function, ms in (("write_row", 540), ("poll_api", 360)):
        stack = file.stack(f"{TRAIN}:31 {function}")
        file.detail("sample", ms, phase="other", state="blocked", code=230, stack=stack)
    f = only(file)
    assert f.variant == "sleep" and f.fix_share == f.params["share"] == pytest.approx(0.6)
    assert places(f) == ["write_row (train.py:31)", "poll_api (train.py:31)"]


def test_two_lines_of_one_function_are_two_places(make: Make) -> None:
    file = make().steps(100, {("other", "blocked"): 9.0}, compute=2.0)
    for line, code, ms in ((31, 230, 540), (35, 202, 360)):
        stack = file.stack(f"{TRAIN}:{line} <module>")
        file.detail("sample", ms, phase="other", state="blocked", code=code, stack=stack)
    f = only(file)
    assert f.variant == "sleep" and f.fix_share == f.params["share"] == pytest.approx(0.6)
    assert places(f) == ["<module> (train.py:31)", "<module> (train.py:35)"]


@pytest.mark.parametrize(("each_ms", "told"), [(3.1, True), (0.7, False)])
def test_a_loader_that_is_fast_enough_is_not_blamed_for_its_reader(make: Make, each_ms: float, told: bool) -> None:
    file = make().steps(100, compute=2.0, blocked_io=6.0)
    at = file.stack("/usr/lib/python3.11/queue.py:171 Queue.get", f"{TRAIN}:32 next_batch")
    file.detail("sample", 590, phase="other", state="blocked", code=202, stack=at)
    file.loader(1, off_thread=(100, 100 * each_ms), dataset="Fast", dataset_at=f"{TRAIN}:17")
    assert only(file).variant == ("background_loader" if told else "queue")


def test_of_a_helper_with_two_callers_both_are_told(make: Make) -> None:
    file = make().steps(100, {("other", "blocked"): 9.0}, compute=2.0)
    for caller, ms in (("41 poll_quota", 600), ("51 throttle_api", 270), ("61 seldom", 20)):
        stack = file.stack(f"{TRAIN}:31 pause", f"{TRAIN}:{caller}")
        file.detail("sample", ms, phase="other", state="blocked", code=230, stack=stack)
    called = "pause (train.py:31) called for 67% by poll_quota (train.py:41) and for 30% by throttle_api (train.py:51)"
    assert only(file).params["place"] == called


STILL, WOKE, STIRRED, WORKS = 1, 2, 3, 4  # BesideSign
TIMED = 1 << 16  # kTimedWait


def asleep_beside(
    make: Make,
    *others: tuple[str, str, float],
    signs: tuple[tuple[int, float], ...] = (),
    at: tuple[str, ...] = (),
    code: int = 202,
) -> Finding:
    """The loop sleeps 590 ms in a lock (`at`: the innermost frames); the others are threads: name, innermost frame, ms
    of it there. They ran whenever a wait ended, or `signs`: what the looks at them told, and for which part of those
    ms."""
    file = make().steps(100, compute=2.0, blocked_io=6.0)
    file.detail(
        "sample", 590, phase="other", state="blocked", code=code, stack=file.stack(*at, f"{TRAIN}:31 wait_for_lock")
    )
    for name, frame, ms in others:
        stack = file.stack(frame, f"{TRAIN}:70 upload")
        thread = file.thread(name)
        for sign, part in signs or ((WOKE, 1.0),):
            file.detail("beside", ms * part, phase="other", thread=thread, stack=stack, code=sign)
        file.detail("beside", 900, phase="backward", thread=file.thread("elsewhere"), stack=stack)
    return only(file)


def test_who_sleeps_with_the_lock_that_is_waited_for(make: Make) -> None:
    f = asleep_beside(
        make, ("uploader", f"{TRAIN}:77 send", 560), ("idle", "/usr/lib/python3.11/queue.py:171 get", 590)
    )
    assert f.who == ("MainThread", "uploader")
    assert (f.variant, f.params["awaited"], f.params["awaited_at"]) == ("lock", named("uploader"), "send (train.py:77)")
    (row,) = beside(f)
    assert row["name"] == named("uploader") and row["share"] == pytest.approx(560 / 590) and row["doubt"] is None


@pytest.mark.parametrize(
    ("signs", "blamed"),
    [
        (((STILL, 0.95), (0, 0.05)), False),  # a heartbeat that sleeps for a minute
        (((STILL, 0.7), (WOKE, 0.3)), False),  # for three waits
        (((WOKE, 0.5), (STIRRED, 0.5)), False),  # for less than a wait
        (((0, 1.0),), False),  # a file of an older version
        (((WORKS, 0.5), (WOKE, 0.5)), True),
        (((WOKE, 0.93), (STIRRED, 0.07)), True),
    ],
)
def test_who_stands_beside_it_is_blamed_only_if_it_runs_where_waits_end(
    make: Make, signs: tuple[tuple[int, float], ...], blamed: bool
) -> None:
    f = asleep_beside(make, ("heartbeat", f"{TRAIN}:77 beat", 580), signs=signs)
    assert ("heartbeat" in f.who, f.params["awaited"]) == (blamed, named("heartbeat") if blamed else None)
    (row,) = beside(f)
    doubt = Said("not_awaited" if signs[0][0] == STILL else "maybe_awaited")
    assert row["name"] == named("heartbeat") and row["doubt"] == (None if blamed else doubt)


def test_who_is_not_waited_for_is_not_named_for_its_python_either(make: Make) -> None:
    file = make().steps(100, compute=2.0, blocked_io=6.0)
    file.detail("sample", 590, phase="other", state="blocked", code=202, stack=file.stack(f"{TRAIN}:31 wait_for_lock"))
    thread, beat = file.thread("heartbeat"), file.stack(f"{TRAIN}:77 beat")
    file.detail("beside", 580, phase="other", thread=thread, stack=beat, code=STILL)
    file.detail("hold", 80, phase="other", thread=thread, stack=beat)
    f = only(file)
    assert f.who == ("MainThread",) and len(beside(f)) == 1


def test_of_several_beside_it_nobody_is_blamed(make: Make) -> None:
    f = asleep_beside(make, ("one", f"{TRAIN}:77 send", 560), ("two", f"{TRAIN}:80 beat", 590))
    assert f.who == ("MainThread",) and f.params["awaited"] is None
    assert [row["name"] for row in beside(f)] == [named("two"), named("one")]


def test_a_thread_that_is_there_now_and_then_is_not_named(make: Make) -> None:
    f = asleep_beside(make, ("uploader", f"{TRAIN}:77 send", 200))
    assert f.who == ("MainThread",) and not beside(f)


@pytest.mark.parametrize(("name", "told"), [("", True), ("named-all-the-same", True), ("named {}", False)])
def test_threads_that_were_joined_are_told_by_what_they_ran(make: Make, name: str, told: bool) -> None:
    """Nobody could ask the name of one that lived for some milliseconds, and of each there are few looks."""
    threads = [(name.format(i), f"{TRAIN}:77 send", 28.0) for i in range(20)]
    f = asleep_beside(make, *threads, signs=((0, 1.0),), at=JOINED)
    name = "a thread that runs upload" if told else None
    assert f.variant == "thread_end" and f.who == (("MainThread", name) if told else ("MainThread",))
    assert (f.params["awaited"], [row["name"] for row in beside(f)]) == (name, [name] if told else [])


def test_of_threads_that_come_and_go_at_a_lock_nobody_is_blamed(make: Make) -> None:
    f = asleep_beside(make, *[("", f"{TRAIN}:77 send", 28.0)] * 20, signs=((0, 1.0),))
    assert f.who == ("MainThread",) and not beside(f)


def test_a_thread_beside_a_join_is_blamed_only_if_it_runs_where_waits_end(make: Make) -> None:
    for sign in (STILL, WOKE):
        f = asleep_beside(make, ("uploader", f"{TRAIN}:77 send", 560), signs=((sign, 1.0),), at=JOINED)
        assert ("uploader" in f.who) == (sign == WOKE)


WAIT = ("/usr/lib/python3.11/threading.py:327 Condition.wait", "/usr/lib/python3.11/threading.py:629 Event.wait")


@pytest.mark.parametrize(
    ("at", "variant"),
    [
        (WAIT, "signal"),
        (JOINED, "thread_end"),
        ((), "lock"),
        (("/usr/lib/python3.11/queue.py:180 Queue.get",), "queue"),
        ((FUTURE,), "future"),
    ],
)
def test_who_ended_a_wait_with_a_timeout_is_not_known(make: Make, at: tuple[str, ...], variant: str) -> None:
    """A thread that wakes by a timer runs as such waits end, and is not the one."""
    f = asleep_beside(make, ("timer", f"{TRAIN}:77 beat", 560), at=at, code=202 + TIMED)
    assert (f.variant, f.params["timed"], f.params["awaited"], f.who) == (variant, True, None, ("MainThread",))
    assert f.params["call"] == "futex"
    f = asleep_beside(make, ("timer", f"{TRAIN}:77 beat", 560), at=at)
    assert (f.variant, f.params["timed"], f.who) == (variant, False, ("MainThread", "timer"))


def test_steps_that_are_too_few_to_tell_the_place_say_so(make: Make) -> None:
    f = only(make().steps(3, blocked_io=3.0, compute=2.0))
    assert (f.variant, f.params["unseen"], f.params["place"]) == ("other", Said("no_sample_tells"), None)


@pytest.mark.parametrize(
    ("asleep_ms", "step_ms", "severity"),
    [(14, 0.5, "info"), (98, 0.5, "info"), (110, 0.5, "info"), (98, 4.2, "info"), (110, 4.2, "critical")],
)
def test_a_short_wait_in_one_step_is_no_warning(make: Make, asleep_ms: float, step_ms: float, severity: str) -> None:
    """A run of 0.07 s that slept in its first forward for a page from a disk was told "critical"."""
    file = make().steps(50, compute=step_ms).steps(1, blocked_io=asleep_ms).steps(49, compute=step_ms)
    found = said(file)
    (f,) = (f for f in found.findings if f.id == "TP301")
    assert f.severity == severity and f.steps_affected == 1
    assert (found.verdict.finding == "TP301") == (severity == "critical")
    assert "blocked" in found.verdict.text, found.verdict


@pytest.mark.parametrize(("others", "loud"), [(0.0, False), (4.0, True)])
def test_what_the_first_step_alone_waits_for_is_no_warning(make: Make, others: float, loud: bool) -> None:
    """A program whose code is not in memory yet waits for the disk."""
    file = make()
    for step in range(100):
        file.step({("forward", "blocked"): 150.0 if step == 0 else others}, compute=3.0)
    found = said(file)
    f = next(f for f in found.findings if f.id == "TP301")
    assert (f.severity != "info") == (found.verdict.kind == "finding") == loud
    assert loud or "no warning, but blocked takes" in found.verdict.text


@pytest.mark.parametrize(("code", "severity"), [(230, "critical"), (16, "critical"), (0, "info"), (-1, "info")])
def test_what_the_first_step_sleeps_is_no_disks_doing(make: Make, code: int, severity: str) -> None:
    """clock_nanosleep and ioctl; read, and no call: a page."""
    file = make(platform=LINUX).steps(1, {("forward", "blocked"): 60_000.0}).steps(99, compute=3.0)
    at = file.stack(f"{TRAIN}:30 warm_up")
    file.detail("sample", 60_000, phase="forward", state="blocked", stack=at, code=code, count=200)
    f = next(f for f in said(file).findings if f.id == "TP301")
    assert f.severity == severity and f.where == "train.py:30"


@pytest.mark.parametrize("code", [202, 7, 45])  # futex, poll, recvfrom
def test_a_wait_below_torch_distributed_is_a_collective_and_no_lock(make: Make, code: int) -> None:
    file = make(platform=LINUX).steps(100, compute=2.0, blocked_io=6.0)
    inner = "/v/site-packages/torch/distributed/c10d_logger.py:83 wrapper"
    at = file.stack(inner, f"{TRAIN}:38 send_weights")
    f = only(file.detail("sample", 590, phase="other", state="blocked", code=code, stack=at, count=60))
    assert f.variant == "collective" and f.where == "train.py:38", f


SOCKET = "/usr/lib/python3.11/socket.py:706 SocketIO.readinto"


@pytest.mark.parametrize(
    ("inner", "server"),
    [
        (
            ("/usr/lib/python3.11/socket.py:706 readinto", "/usr/lib/python3.11/http/client.py:286 begin"),
            "http_server",
        ),
        (
            ("/v/site-packages/redis/_parsers/socket.py:57 _read", "/v/site-packages/redis/client.py:9 get"),
            "database",
        ),
        (("/usr/lib/python3.11/socket.py:706 readinto",), "socket"),
    ],
)
def test_a_wait_below_a_client_library_is_for_its_server(make: Make, inner: tuple[str, ...], server: str) -> None:
    file = make(platform=LINUX).steps(100, compute=2.0, blocked_io=6.0)
    at = file.stack(*inner, f"{TRAIN}:38 push")
    f = only(file.detail("sample", 590, phase="other", state="blocked", code=45, stack=at, count=60))
    assert f.variant == server and f.where == "train.py:38", f


def test_an_exchange_in_few_steps_as_gradients_are_accumulated_is_no_critical(make: Make) -> None:
    file = make(world_size="2", process_group="1")
    for step in range(100):
        cells = {("backward", "native"): 2.0} | ({("backward", "blocked"): 9.0} if step % 4 == 3 else {})
        file.step(cells)
    at = file.stack("/x/site-packages/torch/autograd/graph.py:829 _engine_run_backward", f"{TRAIN}:31 train")
    file.detail("sample", 220, phase="backward", state="blocked", code=202, stack=at, count=30)
    f = next(f for f in said(file).findings if f.id == "TP301")
    assert (f.severity, f.variant) == ("warning", "ranks"), f
    assert isinstance(f.params["ddp"], tuple) and f.params["ddp"][0] == Said("no_sync", {"at_times": True})
