"""What the scenarios share: the ground truth, hogs of the GIL, threads that end. The module's folder is argv[1]."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, sys.argv[1])
import gil_truth as truth

__all__ = [
    "BESIDE",
    "GIL_WAIT",
    "HAND_OFF",
    "HOLD",
    "SAMPLE",
    "STATES",
    "TAKE",
    "hog",
    "line_of_mark",
    "pin",
    "running",
    "truth",
]

GIL_WAIT, SAMPLE, HOLD, BESIDE = 3, 4, 5, 8  # EventKind
TAKE, HAND_OFF, ESTIMATE = 0, 1, 2  # GilWaitKind
STATES = ("python", "native", "parallel", "blocked", "gil_wait", "unknown")


def pin(cpu: int) -> None:
    cpus = sorted(os.sched_getaffinity(os.getpid()))
    os.sched_setaffinity(0, {cpus[cpu % len(cpus)]})


@contextlib.contextmanager
def running(*bodies: Callable[[threading.Event], None]) -> Iterator[None]:
    """Each body on its own thread, told by an event when to stop."""
    stop = threading.Event()
    threads = [threading.Thread(target=body, args=(stop,)) for body in bodies]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def hog(hold_ns: int, away_ns: int, cpu: int) -> Callable[[threading.Event], None]:
    def hog_body(stop: threading.Event) -> None:
        pin(cpu)
        while not stop.is_set():
            truth.spin(hold_ns)  # MARK hold
            if away_ns:
                truth.spin_without_gil(away_ns)

    return hog_body


def line_of_mark(mark: str) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (number,) = (i for i, text in enumerate(lines, 1) if text.endswith(f"# MARK {mark}"))
    return number
