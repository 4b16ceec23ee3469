"""Threads that come, go and call in from C, and processes that fork: each watch sees its own, and all of it."""

from __future__ import annotations

import ctypes
import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trainperf
from children import child
from loops import Task, watch
from trainperf import _native
from trainperf.findings import find


def train(steps: int) -> None:
    task = Task()
    for batch in task.loader(steps):
        task.train(batch)


def call_from_native_thread(function: Callable[[], None], calls: int) -> None:
    """Calls `function` from a thread that CPython did not make: it gets a new thread state at each call."""
    callback_type = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)

    def body(_: Any) -> None:
        function()

    callback = callback_type(body)
    libc = ctypes.CDLL(None)
    for _ in range(calls):
        thread = ctypes.c_ulong()
        assert libc.pthread_create(ctypes.byref(thread), None, callback, None) == 0
        assert libc.pthread_join(thread, None) == 0


@pytest.mark.parametrize("timeout", [0.006, None])
def test_whether_a_wait_has_a_timeout_is_seen(timeout: float | None, tmp_path: Path) -> None:
    """A thread sets another event at each wake-up, or the one that is waited for."""
    done, never, waited = threading.Event(), threading.Event(), threading.Event()

    def other() -> None:
        while not done.wait(0.006):
            (never if timeout else waited).set()

    def loop(_: trainperf.Watch) -> None:
        task = Task()
        thread = threading.Thread(target=other, name="other")
        thread.start()
        for batch in task.loader(100):
            task.train(batch)
            waited.wait(timeout)
            waited.clear()
        done.set()
        thread.join()

    run = watch(loop, tmp_path)
    found = next(f for f in find(run).findings if f.id == "TP301")
    there = [d for d in run.detail_totals("sample") if d.state == "blocked"]
    assert (found.variant, found.params["timed"]) == ("signal", timeout is not None)
    timed = sum(d.ns for d in there if d.timed) / sum(d.ns for d in there)
    assert timed > 0.8 if timeout else timed < 0.2
    assert (not timeout) or found.who == ("MainThread",)


@pytest.mark.alone
def test_a_native_thread_is_one_thread(tmp_path: Path) -> None:
    compare_type = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    stop = threading.Event()
    hold = ctypes.PyDLL(None).usleep  # sleeps with the GIL in hand

    def compare(_: Any, __: Any) -> int:
        hold(300)
        return 0

    callback = compare_type(compare)
    numbers = (ctypes.c_int * 8)(*range(8))

    def native() -> None:
        sort = ctypes.CDLL(None).qsort  # releases the GIL, and takes it for each comparison
        while not stop.is_set():
            sort(numbers, 8, 4, callback)

    def loop(_: trainperf.Watch) -> None:
        hog = threading.Thread(target=native, name="sorter")
        hog.start()
        train(12)  # a step waits for the GIL a hundred times, 5 ms each
        stop.set()
        hog.join()

    run = watch(loop, tmp_path)
    by_tid = [thread.native_tid for thread in run.threads.values()]
    assert len(by_tid) == len(set(by_tid))
    holders = {d.thread.name for d in run.details("gil_wait") if d.thread is not None}
    assert "sorter" in holders
    assert run.dropped["threads"] == 0


def test_native_threads_that_come_and_go(tmp_path: Path) -> None:
    def loop(_: trainperf.Watch) -> None:
        train(20)
        call_from_native_thread(lambda: time.sleep(0.0005), 100)
        train(20)

    assert watch(loop, tmp_path).step_count >= 39


def test_a_forked_childs_watch_is_its_own(tmp_path: Path) -> None:
    child_file = tmp_path / "child.tpr"
    with trainperf.watch(tmp_path / "parent.tpr", verbose=False) as parent:
        train(20)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                with trainperf.watch(child_file, verbose=False):
                    time.sleep(0.25)
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
    assert parent.run.step_count == 20
    with trainperf.open(child_file) as child:
        assert child.step_count == 0
        assert child.lead_ns == 0


def test_drops_of_an_earlier_watch_are_not_this_ones(tmp_path: Path) -> None:
    with trainperf.watch(tmp_path / "first.tpr", verbose=False) as first:
        step = first.step
        for _ in range(200_000):
            step()
    with trainperf.watch(tmp_path / "second.tpr", verbose=False) as second:
        train(20)
    assert first.run.dropped["marks"] > 0
    assert second.run.dropped["marks"] == 0
    assert not (second.run.steps.flags & 8).any()


@pytest.mark.alone
def test_threads_that_fetch_and_end_leave_room_for_others(tmp_path: Path) -> None:
    def loop(_: trainperf.Watch) -> None:
        task = Task()
        for _epoch in range(12):
            threads = [threading.Thread(target=lambda: list(task.loader(2))) for _ in range(10)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            train(2)
            time.sleep(0.15)  # the collector looks once a second who has ended

    run = watch(loop, tmp_path)
    assert run.dropped["threads_without_ring"] <= 2 * (120 - 64)  # what came before the collector looked
    assert not (run.steps.flags & 8).any()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become a user at its limit of processes")
def test_no_room_for_our_thread_leaves_the_signals_alone() -> None:
    script = """
import os, resource, signal
from trainperf import _native
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
os.setuid(65534)
try:
    _native.Session("")
except OSError as error:
    print("refused:", error)
assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "refused: no thread could be started" in done.stdout


@pytest.mark.alone
def test_off_tiers_are_said_and_abstained_from(tmp_path: Path) -> None:
    stop = threading.Event()
    hold = ctypes.PyDLL(None).usleep

    def hog() -> None:
        while not stop.is_set():
            hold(3000)

    def loop(_: trainperf.Watch) -> None:
        thread = threading.Thread(target=hog, name="hog")
        thread.start()
        train(30)
        stop.set()
        thread.join()

    for tier in ("exact", "procfs", "busy-only", "off"):
        stop.clear()
        (tmp_path / tier).mkdir()
        run = watch(loop, tmp_path / tier, gil=tier, sampler_hz=500)
        assert run.tiers["gil_waits"].tier == tier
        found = find(run)
        if tier in ("busy-only", "off"):
            assert run.cause_ns("gil_wait") == 0
            assert any(a.id == "TP201" for a in found.abstained), found.abstained
        else:
            assert run.cause_ns("gil_wait") > 0.05 * run.wall_ns
            assert "TP201" in {f.id for f in found.findings}


def test_watches_begin_and_end_while_threads_mark(tmp_path: Path) -> None:
    ended = threading.Event()

    def mark() -> None:
        while not ended.is_set():
            _native.begin(2, 0, 0, 0)
            _native.end(2)
            _native.step()

    threads = [threading.Thread(target=mark) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for i in range(10):
            session = _native.Session(str(tmp_path / f"{i}.tpr"))
            session.begins()
            session.flush()
            session.ends()
            session.begins()
            session.stop("normally")
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    for i in range(10):
        assert trainperf.open(tmp_path / f"{i}.tpr").meta["ended"] == "normally"


@pytest.mark.live
def test_a_look_that_takes_long_is_waited_for(tmp_path: Path) -> None:
    """The sampler reads /proc/self/maps of a thread that sleeps, once a second: 60 ms where there are this many."""
    body = """
import json, mmap
protections = mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE  # two, or the kernel would merge them
mappings = [mmap.mmap(-1, 4096, prot=protections[i % 2]) for i in range(50_000)]
with trainperf.watch(path, verbose=False) as watch:
    end = time.monotonic() + 6
    while time.monotonic() < end:
        threading.Event().wait(0.002)
        watch.step()
print(json.dumps({what: count for what, count in watch.run.dropped.items() if count}))
"""
    dropped = json.loads(child(body, tmp_path / "a.tpr").stdout)
    # Of 2,500: the thread itself may be kept from a CPU between its clock and its ring.
    assert dropped.pop("late_events", 0) <= 5 and dropped == {}


def test_a_flush_waits_for_a_sampler_that_is_kept_off_the_cpus(tmp_path: Path) -> None:
    def named(task: Path) -> str:
        return (task / "comm").read_text(encoding="utf-8").strip()

    session = _native.Session(str(tmp_path / "a.tpr"))
    session.begins()
    while not (tids := [int(t.name) for t in Path("/proc/self/task").iterdir() if named(t) == "tp-sampler"]):
        time.sleep(0.001)
    cpu = min(os.sched_getaffinity(0))
    os.sched_setaffinity(tids[0], [cpu])
    os.sched_setscheduler(tids[0], os.SCHED_IDLE, os.sched_param(0))
    busy = subprocess.Popen([sys.executable, "-c", f"import os\nos.sched_setaffinity(0, [{cpu}])\nwhile True: pass"])
    not_there = []
    try:
        for steps in range(1, 16):
            time.sleep(0.002)
            _native.step()
            session.flush()
            not_there.append(steps - session.steps_closed)
    finally:
        busy.kill()
        busy.wait()
        session.ends()
        session.stop("normally")
    assert max(not_there) <= 1, not_there  # the first call may end no step


@pytest.mark.alone
def test_a_loop_that_waits_is_looked_at_until_it_is_met_on_the_cpu(tmp_path: Path) -> None:
    # Else what it does there is unknown: no sample has told Python from compute. What comes before the loop, here a
    # sleep, is none of it, and must not use up the first looks.
    for name in "ab":
        with trainperf.watch(tmp_path / f"{name}.tpr", verbose=False) as run:
            time.sleep(0.4)
            task = Task()
            for batch in task.loader(20):
                time.sleep(0.012)
                task.train(batch)
        with closing(sqlite3.connect(run.path)) as database:
            looks = dict(database.execute("SELECT state, sum(count) FROM detail WHERE kind = 'sample' GROUP BY state"))
        assert looks.keys() & {"python", "native"} or sum(looks.values()) >= 20, looks
