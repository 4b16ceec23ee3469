"""Exact waits against natively timed ones."""

from __future__ import annotations

import linecache
import os
import queue
import sys
import threading
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from common import GIL_WAIT, HAND_OFF, TAKE, hog, line_of_mark, pin, running, truth


def compare(count: int, away_ns: int, *hogs: Callable[[threading.Event], None]) -> dict[str, Any]:
    """The probe's sum of waits against the natively timed one, on this thread."""
    pin(0)
    truth.begin()
    truth.install()
    truth.watch_this_thread()
    with running(*hogs):
        truth.spin_without_gil(20_000_000)
        truth.drain_rings()
        sum_ = truth.timed_acquires(count, away_ns)
        events = truth.drain_rings()
        me = truth.this_thread()
        totals = truth.threads()[me]
    stats = truth.waits_stats()
    truth.uninstall()
    inside = [e for e in events if e["kind"] == GIL_WAIT and sum_.begin_ns <= e["start_ns"] < sum_.end_ns]
    take = [e for e in inside if e["what"] == TAKE]
    threads = truth.threads()
    where: dict[str, int] = {}
    for e in take:
        frames = truth.stack(e["stack"])
        if frames:
            key = f"{Path(frames[0][0]).name}:{frames[0][1]}:{frames[0][2]}:{len(frames)}"
            where[key] = where.get(key, 0) + e["end_ns"] - e["start_ns"]
    truth.end()
    probe_ns = sum(e["end_ns"] - e["start_ns"] for e in take)
    missed = [taken - asked for asked, taken in sum_.takes]
    starts = [asked for asked, _ in sum_.takes]
    for e in take:
        missed[bisect_right(starts, e["start_ns"]) - 1] -= e["end_ns"] - e["start_ns"]
    return {
        "truth_ns": sum_.take_ns,
        "probe_ns": probe_ns,
        "count": count,
        "events": len(take),
        "hand_off_truth_ns": sum_.release_ns,
        "hand_off_ns": sum(e["end_ns"] - e["start_ns"] for e in inside if e["what"] == HAND_OFF),
        "hand_offs": sum(e["what"] == HAND_OFF for e in inside),
        "diff": (probe_ns - sum_.take_ns) / sum_.take_ns,
        "requested_ns": sum_.requested_ns,
        "missed_ns": median(missed),  # of an acquire
        "where": where,
        "mark": line_of_mark("hold"),
        "held_by": {str(threads[e["object"]][0]): 1 for e in take if e["object"]},
        "self": os.getpid(),
        "run_delay_ns": sum(e["run_delay_ns"] for e in take),
        "total_ns": totals[2],
        "stats": stats,
    }


def truth_20ms() -> dict[str, Any]:
    return compare(25, 1_000_000, hog(20_000_000, 0, 1))


def truth_2ms() -> dict[str, Any]:
    return compare(300, 200_000, hog(2_000_000, 50_000, 1))


def truth_100us() -> dict[str, Any]:
    return compare(2_000, 20_000, hog(100_000, 20_000, 1))


def truth_two_hogs() -> dict[str, Any]:
    return compare(40, 1_000_000, hog(6_000_000, 0, 1), hog(3_000_000, 0, 1))


def run_delay_ns() -> int:
    """How long this thread has waited for a CPU so far, by the kernel's account; 0 where it keeps none."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1])
    except FileNotFoundError:
        return 0


def woken_holder() -> dict[str, Any]:
    """A thread that is given work asks for the GIL, and works with it: this one's wait begins as it hands it over."""
    truth.begin()
    truth.install()
    truth.watch_this_thread()
    work: queue.Queue[int] = queue.Queue()

    def writer(stop: threading.Event) -> None:
        while not stop.is_set():
            hold_ns = work.get()
            truth.spin(hold_ns)

    def spin_until(time_ns: int) -> None:
        while truth.now_ns() < time_ns:
            pass

    waits: list[dict[str, Any]] = []
    held_ns = delay_ns = 0  # by the writer, and this thread's wait for a CPU meanwhile
    with running(writer):
        # Where others use a CPU, this thread mostly waits for one while the writer holds the GIL.
        for _ in range(1000):
            delay_ns -= run_delay_ns()
            work.put(1_000_000)
            held_ns += 1_000_000
            spin_until(truth.now_ns() + 2_000_000)
            delay_ns += run_delay_ns()
            spin_until(truth.now_ns() + 8_000_000)
            waits += [e for e in truth.drain_rings() if e["kind"] == GIL_WAIT and e["what"] == TAKE]
            if sum(e["end_ns"] - e["start_ns"] for e in waits) > 50_000_000:
                break
        work.put(0)
    at: dict[str, int] = {}
    for e in waits:
        frames = truth.stack(e["stack"])
        if frames:
            line = linecache.getline(frames[0][0], frames[0][2]).strip()
            at[line] = at.get(line, 0) + e["end_ns"] - e["start_ns"]
    truth.uninstall()
    truth.end()
    return {"at": at, "held_ns": held_ns, "delay_ns": delay_ns}


def interval_set_meanwhile() -> dict[str, int]:
    """The holder sets the switch interval far beyond the time since the machine was started, as this thread waits."""
    truth.begin()
    truth.install()
    truth.watch_this_thread()
    interval = sys.getswitchinterval()

    def setter(stop: threading.Event) -> None:
        while not stop.is_set():
            truth.spin(100_000)
            sys.setswitchinterval(1e9)
            truth.spin(4_000_000)
            sys.setswitchinterval(interval)
            truth.spin_without_gil(1_000_000)

    waited = 0
    with running(setter):
        for _ in range(200):
            truth.spin_without_gil(500_000)
            waited += sum(e["end_ns"] - e["start_ns"] for e in truth.drain_rings() if e["kind"] == GIL_WAIT)
    truth.uninstall()
    truth.end()
    return {"waited_ns": waited, "restored": int(sys.getswitchinterval() == interval)}
