"""What takes the GIL's place on a free-threaded build, against the breaks that a thread itself finds between two looks
at the clock."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from common import GIL_WAIT, pin, running, truth

WORLD_STOP, LOCK = 3, 4  # GilWaitKind
SHORTEST_NS = 100_000
SECONDS = 2.0

OBJECTS: list[list[int]] = []


def collects(stop: threading.Event) -> None:
    pin(1)
    while not stop.is_set():
        gc.collect()
        time.sleep(0.01)


def sets_tracer(stop: threading.Event) -> None:
    pin(1)
    while not stop.is_set():
        threading.settrace_all_threads(None)
        time.sleep(0.002)


def watched(kind: int, act: Callable[[], None], body: Callable[[threading.Event], None]) -> dict[str, Any]:
    """What was told of waits of that kind, and the breaks of at least 0.1 ms that this thread had."""
    pin(0)
    gc.disable()
    truth.begin()
    truth.install_runtime_waits()
    truth.watch_this_thread()
    with running(body):
        time.sleep(0.01)
        truth.drain_rings()
        # A short call of Python at each look: in it the thread meets what stops it.
        breaks = truth.breaks(truth.now_ns() + int(SECONDS * 1e9), SHORTEST_NS, act)
        events = [e for e in truth.drain_rings() if e["kind"] == GIL_WAIT]
    mine = [e for e in events if e["thread"] == truth.this_thread() and e["what"] == kind]
    stats = truth.runtime_waits_stats()
    truth.uninstall_runtime_waits()
    told_ns = true_ns = 0
    unlike = 0
    for begin, end in breaks:
        of = sum(
            min(end, e["end_ns"]) - max(begin, e["start_ns"])
            for e in mine
            if e["start_ns"] < end and e["end_ns"] > begin
        )
        if of > 0:
            told_ns += of
            true_ns += end - begin
    within = [e for e in mine if e["end_ns"] - e["start_ns"] >= SHORTEST_NS]
    for e in within:
        unlike += not any(begin <= e["start_ns"] and e["end_ns"] <= end for begin, end in breaks)
    threads = truth.threads()
    others: dict[str, int] = {}
    functions: dict[str, int] = {}
    for e in mine:
        ns = e["end_ns"] - e["start_ns"]
        tid = threads[e["object"]][0] if e["object"] else 0
        who = "this" if tid == threading.get_native_id() else "other" if tid else "unknown"
        others[who] = others.get(who, 0) + ns
        names = [name.rpartition(".")[2] for _, name, _ in truth.stack(e["stack"])]
        for name in set(names):
            functions[name] = functions.get(name, 0) + ns
    truth.end()
    return {
        "told_ns": told_ns,
        "true_ns": true_ns,
        "sum_ns": sum(e["end_ns"] - e["start_ns"] for e in mine),
        "count": len(mine),
        "unlike": unlike,
        "others": others,
        "functions": functions,
        "breaks": len(breaks),
        "kinds": sorted({e["what"] for e in events}),
        "stats": stats,
    }


def nothing() -> None:
    pass


def world_stops() -> dict[str, Any]:
    OBJECTS.extend([i] for i in range(200_000))
    return watched(WORLD_STOP, nothing, collects)


def tracers() -> dict[str, Any]:
    return watched(WORLD_STOP, nothing, sets_tracer)


def locks_of_the_program() -> dict[str, Any]:
    """A threading.Lock, a queue.SimpleQueue and a join: no locks of the interpreter's."""
    import queue

    lock = threading.Lock()
    gives: queue.SimpleQueue[int] = queue.SimpleQueue()

    def holds(stop: threading.Event) -> None:
        while not stop.is_set():
            with lock:
                time.sleep(0.002)
            gives.put(1)
            time.sleep(0.001)

    def takes() -> None:
        with lock:
            pass
        gives.get()
        thread = threading.Thread(target=time.sleep, args=(0.001,))
        thread.start()
        thread.join()

    return watched(LOCK, takes, holds)


def runtime_lives() -> dict[str, Any]:
    """Installed and taken out while threads stop the world and wait for locks; and in forked children."""
    import os

    shared = dict.fromkeys(range(50_000))

    def busy(stop: threading.Event) -> None:
        while not stop.is_set():
            shared.copy()
            shared[1] = 2
            gc.collect(0)

    truth.begin()
    failed = []
    with running(busy, busy, busy, collects):
        for i in range(60):
            truth.install_runtime_waits()
            truth.watch_this_thread()
            for _ in range(50):
                shared[2] = 1
            truth.drain_rings()
            if i % 10 == 0:
                pid = os.fork()
                if pid == 0:
                    shared.copy()
                    os._exit(0)
                _, status = os.waitpid(pid, 0)
                failed += [status] * (status != 0)
            truth.uninstall_runtime_waits()
    waiting = [of for of in truth.threads().values() if of[4]]
    truth.end()
    return {"failed": failed, "open_waits": len(waiting), "gil": sys._is_gil_enabled()}
