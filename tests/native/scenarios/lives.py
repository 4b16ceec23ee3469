"""Threads, forks, exits, installations and sub-interpreters that come and go under contention."""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from common import GIL_WAIT, HOLD, hog, running, truth
from waits import compare


def short_lived_threads() -> dict[str, Any]:
    """Threads come and go while others contend: nobody's wait is lost, and ids are not mixed up."""
    truth.begin()
    truth.install()
    truth.start_sampler(500_000)
    truth.watch_this_thread()
    truth.watch(truth.this_thread())
    with running(hog(200_000, 50_000, 1)):
        for _ in range(150):
            threads = [threading.Thread(target=truth.spin, args=(100_000,)) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    tids = [tid for tid, *_ in truth.threads().values()]
    result = {
        "threads": len(tids),
        "without_tid": tids.count(0),
        "tid_in_descriptor": sys.version_info < (3, 11),
        "sampler": truth.sampler_stats(),
    }
    truth.stop_sampler()
    truth.uninstall()
    truth.end()
    return result


def forks() -> dict[str, Any]:
    """Children are forked while threads fight for the GIL in the hook; they use the GIL, and end well."""
    truth.begin()
    truth.install()
    truth.start_sampler(500_000)
    truth.watch_this_thread()
    truth.watch(truth.this_thread())
    failed = []
    with running(hog(100_000, 10_000, 0), hog(50_000, 5_000, 1)):
        for i in range(200):
            pid = os.fork()
            if pid == 0:
                signal.alarm(10)
                child = threading.Thread(target=truth.spin, args=(200_000,))
                child.start()
                truth.spin_without_gil(1000)
                child.join()
                if i % 2:
                    truth.uninstall()
                    truth.stop_sampler()
                os._exit(0)
            _, status = os.waitpid(pid, 0)
            if status:
                failed.append(status)
    calls = truth.waits_stats()["hook_calls"]
    truth.stop_sampler()
    truth.uninstall()
    truth.end()
    return {"failed": failed, "hook_calls": calls}


def fork_watches_again() -> dict[str, Any]:
    """A child may begin a watch of its own."""
    truth.begin()
    truth.install()
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        truth.uninstall()
        result = compare(50, 100_000, hog(1_000_000, 10_000, 1))
        os._exit(0 if abs(result["diff"]) < 0.02 and result["events"] > 20 else 1)
    _, status = os.waitpid(pid, 0)
    truth.uninstall()
    truth.end()
    return {"status": status}


def exit_child() -> dict[str, Any]:
    """Exits with daemon threads in the hook and nothing taken out."""
    truth.begin()
    truth.install()
    truth.start_sampler(300_000)
    truth.watch_this_thread()
    truth.watch(truth.this_thread())
    for i in range(3):
        threading.Thread(target=hog(50_000 * (i + 1), 20_000, i), args=(threading.Event(),), daemon=True).start()
    truth.spin_without_gil(3_000_000)
    return {"done": True}


def exits() -> dict[str, Any]:
    return _exits(4)


def many_exits() -> dict[str, Any]:
    return _exits(12)


def _exits(times: int) -> dict[str, Any]:
    """Several at a time: they are kept from their CPUs in places where one alone never is."""
    command = [sys.executable, str(Path(__file__).with_name("run.py")), sys.argv[1], "exit_child"]
    failed = []
    for _ in range(times):
        children = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(5)]
        for child in children:
            _, stderr = child.communicate(timeout=60)
            if child.returncode or stderr:
                failed.append((child.returncode, stderr.decode()[-300:]))
    return {"failed": failed[:3], "failures": len(failed)}


def installs() -> dict[str, Any]:
    """Installed and taken out again under contention; nothing is recorded, and nothing patched, in between."""
    library = ctypes.CDLL(None)
    truth.begin()
    slots = []
    with running(hog(100_000, 10_000, 0), hog(50_000, 5_000, 1)):
        for _ in range(10):
            truth.install()
            truth.watch_this_thread()
            truth.timed_acquires(20, 1000)
            truth.uninstall()
            truth.drain_rings()
            truth.timed_acquires(20, 1000)
            slots.append(len(truth.drain_rings()))
        truth.install()
        second = ""
        try:
            truth.install()
        except RuntimeError as error:
            second = str(error)
        truth.uninstall()
    open_waits = [since for *_, since in truth.threads().values() if since]
    truth.end()
    return {"after_uninstall": sum(slots), "second": second, "open_waits": open_waits, "libc": bool(library)}


def _interpreters() -> Any:
    try:
        return importlib.import_module("_xxsubinterpreters")
    except ImportError:
        return importlib.import_module("_interpreters")


def own_gil() -> dict[str, Any]:
    """Two threads of a sub-interpreter fight for its own GIL: neither is a wait of this thread's, nor holds its
    GIL."""
    if sys.version_info < (3, 13):  # 3.12 hangs where an interpreter ends that had threads
        return {}
    interpreters = _interpreters()
    fight = """
import threading
def spin():
    for _ in range(1500):
        sum(range(20000))
threads = [threading.Thread(target=spin) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""
    made = interpreters.create()
    truth.begin()
    truth.install()
    truth.start_sampler(500_000)
    truth.watch_this_thread()
    truth.watch(truth.this_thread())
    thread = threading.Thread(target=interpreters.run_string, args=(made, fight))
    begin = truth.now_ns()
    thread.start()
    while thread.is_alive():
        sum(range(20000))
    wall = truth.now_ns() - begin
    events = truth.drain_rings()
    held = [e for e in truth.drain_sampler() if e["kind"] == HOLD]
    me = truth.this_thread()
    result = {
        "wall_ns": wall,
        "waited_ns": sum(e["end_ns"] - e["start_ns"] for e in events if e["kind"] == GIL_WAIT),
        "held_ns": sum(e["end_ns"] - e["start_ns"] for e in held if e["object"] == me),
        "others_ns": sum(e["end_ns"] - e["start_ns"] for e in held if e["object"] != me),
    }
    truth.stop_sampler()
    truth.uninstall()
    truth.end()
    interpreters.destroy(made)
    return result


def subinterpreter() -> dict[str, Any]:
    """Threads of a legacy sub-interpreter share the GIL; nothing breaks, and the main one's waits are still timed."""
    interpreters = _interpreters()
    truth.begin()
    truth.install()
    truth.start_sampler(500_000)
    truth.watch_this_thread()
    truth.watch(truth.this_thread())

    def churn(stop: threading.Event) -> None:
        while not stop.is_set():
            made = interpreters.create()
            interpreters.run_string(made, "x = sum(range(20000))")
            interpreters.destroy(made)

    with running(churn):
        for _ in range(300):
            truth.spin(1_000_000)
            truth.spin_without_gil(1_000_000)
    calls = truth.waits_stats()["hook_calls"]
    truth.stop_sampler()
    truth.uninstall()
    truth.end()
    return {"hook_calls": calls}
