"""Stacks of other processes' main threads, read while these run, sleep, are killed, or run another program."""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from common import truth

WAYS = ("vm_read", "proc_mem")


def sleeps(ready: Connection) -> None:
    ready.send(os.getpid())
    time.sleep(60)


def computes(ready: Connection) -> None:
    ready.send(os.getpid())
    while True:
        sum(range(1000))


def recurses(ready: Connection, depth: int = 40) -> None:
    if depth:
        return recurses(ready, depth - 1)
    while True:  # code that comes and goes
        scope: dict[str, Any] = {}
        exec(compile("def fresh(n):\n    return n and fresh(n - 1)\n", "<fresh>", "exec"), scope)
        scope["fresh"](30)
        if ready is not None:
            ready.send(os.getpid())
            ready = None  # type: ignore[assignment]


def becomes_another(ready: Connection) -> None:
    ready.send(os.getpid())
    time.sleep(0.5)
    os.execv("/bin/sleep", ["sleep", "60"])


def nothing() -> None:
    pass


def _read(
    method: str, target: Callable[..., None], way: str, count: int, before: Callable[[int], None] | None = None
) -> dict[str, Any]:
    context = mp.get_context(method)
    here, there = context.Pipe()
    process = context.Process(target=target, args=(there,), daemon=True)
    process.start()
    pid = here.recv()
    time.sleep(0.2)
    try:
        times, held, ns = truth.read_child(pid, count, way, lambda: before(pid) if before else None)
    finally:
        process.kill()
        process.join()
    stacks = {i: truth.stack(i) for i in times if i}
    return {
        "functions": sorted({frames[0][1] for frames in stacks.values()}),
        "has_caller": all(any(f[1].endswith("Process.run") or f[1] == "run" for f in s) for s in stacks.values()),
        "read": sum(n for i, n in times.items() if i),
        "rejected": times.get(0, 0),
        "held": held,
        "ns": ns,
    }


def children() -> dict[str, Any]:
    truth.begin()
    methods = ("fork", "spawn", "forkserver")
    return {
        f"{method} {way} {target.__name__}": _read(method, target, way, 300)
        for method in methods
        for way in WAYS
        for target in (sleeps, computes, recurses)
        if target is not recurses or way == "vm_read"
    }


def children_that_end() -> dict[str, Any]:
    truth.begin()

    def kill(pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.2)

    def wait(pid: int) -> None:
        time.sleep(0.6)

    return {
        f"{name} {way}": _read("fork", target, way, 300, before)
        for way in WAYS
        for name, target, before in (("killed", computes, kill), ("another program", becomes_another, wait))
    }


def not_a_child() -> dict[str, Any]:
    """Processes that are none of ours, or not Python, say so."""
    import subprocess

    truth.begin()
    said: dict[str, Any] = {}
    program = subprocess.Popen(["/bin/sleep", "60"])
    time.sleep(0.1)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for name, pid in (("no python", program.pid), ("gone", gone.pid)):
        try:
            truth.read_child(pid, 1, "vm_read", nothing)
            said[name] = ""
        except RuntimeError as error:
            said[name] = str(error)
    program.kill()
    program.wait()
    return said
