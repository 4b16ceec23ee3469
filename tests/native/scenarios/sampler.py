"""What the sampler says of holders, of waits without the hook, and of the watched thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from common import BESIDE, GIL_WAIT, HOLD, SAMPLE, STATES, hog, pin, running, truth


def hold_shares() -> dict[str, Any]:
    """The sampler against two hogs of known shares, each on its own core, that rarely meet."""
    truth.begin()
    held = {}

    def measured(name: str, hold_ns: int, away_ns: int, cpu: int) -> Callable[[threading.Event], None]:
        def body(stop: threading.Event) -> None:
            pin(cpu)
            total = 0
            while not stop.is_set():
                begin = truth.now_ns()
                truth.spin(hold_ns)
                total += truth.now_ns() - begin
                truth.spin_without_gil(away_ns)
            held[name] = (threading.get_native_id(), total)

        return body

    truth.start_sampler(1_000_000)
    begin = truth.now_ns()
    with running(measured("long", 3_000_000, 7_000_000, 0), measured("short", 300_000, 2_100_000, 1)):
        truth.drain_sampler()
        time.sleep(3)
    wall = truth.now_ns() - begin
    events = truth.drain_sampler()
    stats = truth.sampler_stats()
    truth.stop_sampler()
    threads = truth.threads()
    sampled: dict[int, int] = {}
    for e in events:
        if e["kind"] == HOLD:
            tid = threads[e["object"]][0]
            sampled[tid] = sampled.get(tid, 0) + e["end_ns"] - e["start_ns"]
    truth.end()
    return {
        name: {"true": total / wall, "sampled": sampled.get(tid, 0) / wall} for name, (tid, total) in held.items()
    } | {"stats": stats, "wall_ns": wall}


def procfs() -> dict[str, Any]:
    """The estimate of waits without the hook, against the timed truth."""
    pin(0)
    truth.begin()
    truth.watch_this_thread()
    truth.start_sampler(1_000_000, estimate_waits=True)
    truth.watch(truth.this_thread())
    with running(hog(2_000_000, 500_000, 1)):
        truth.spin_without_gil(20_000_000)
        truth.drain_sampler()
        sum_ = truth.timed_acquires(700, 1_500_000)
        events = truth.drain_sampler()
    stats = truth.sampler_stats()
    truth.stop_sampler()
    waits = [e for e in events if e["kind"] == GIL_WAIT]
    wall = sum_.end_ns - sum_.begin_ns
    names = {frames[0][1].rpartition(".")[2] for e in waits if (frames := truth.stack(e["stack"]))}
    truth.end()
    return {
        "true": sum_.take_ns / wall,
        "estimated": sum(e["end_ns"] - e["start_ns"] for e in waits) / wall,
        "whats": sorted({e["what"] for e in waits}),
        "names": sorted(names),
        "stats": stats,
    }


def spin_in_python(until_ns: int) -> int:
    x = 0
    while truth.now_ns() < until_ns:
        for _ in range(500):
            x += 1
    return x


def sleeps_beside(stop: threading.Event) -> None:
    while not stop.is_set():
        time.sleep(0.05)


def sleeps_with(lock: threading.Lock) -> Callable[[threading.Event], None]:
    def holds(stop: threading.Event) -> None:
        while not stop.is_set():
            with lock:
                time.sleep(0.03)
            time.sleep(0.005)

    return holds


def stands_still(stop: threading.Event) -> None:
    time.sleep(1.0)


def states() -> dict[str, Any]:
    """What the watched thread is seen doing, in four acts; and its stack."""
    truth.begin()
    truth.install()
    truth.start_sampler(1_000_000)
    truth.watch_this_thread()
    truth.watch(truth.this_thread())
    lock = threading.Lock()
    lock.acquire()

    def act(body: Callable[[], object]) -> dict[str, Any]:
        truth.drain_sampler()
        body()
        events = [e for e in truth.drain_sampler() if e["kind"] == SAMPLE]
        seen: dict[str, int] = {}
        functions: dict[str, int] = {}
        for e in events:
            state = STATES[e["what"]]
            seen[state] = seen.get(state, 0) + 1
            names = [name.rpartition(".")[2] for _, name, _ in truth.stack(e["stack"])]
            for name in set(names):
                functions[name] = functions.get(name, 0) + 1
        return {
            "samples": len(events),
            "seen": seen,
            "functions": functions,
            "codes": {str(e["value"]) for e in events},
        }

    result: dict[str, Any] = {
        "python": act(lambda: spin_in_python(truth.now_ns() + 300_000_000)),
        "native": act(lambda: truth.spin_without_gil(300_000_000)),
        "sleep": act(lambda: time.sleep(0.3)),
        "lock": act(lambda: lock.acquire(timeout=0.3)),
    }
    with running(hog(20_000_000, 0, 1)):
        result["gil_wait"] = act(lambda: truth.timed_acquires(15, 1_000))
    for value in result.values():
        value["codes"] = sorted(value["codes"])
    with running(sleeps_beside):
        lock.acquire(timeout=0.3)
        beside = [e for e in truth.drain_sampler() if e["kind"] == BESIDE]
    names = [{name.rpartition(".")[2] for _, name, _ in truth.stack(e["stack"])} for e in beside]
    result["beside"] = {"looks": len(beside), "there": sum("sleeps_beside" in of for of in names)}
    result["signs"] = signs_beside()
    result["stats"] = truth.sampler_stats()
    truth.stop_sampler()
    truth.uninstall()
    truth.end()
    return result


def count_in_python(times: int) -> int:
    x = 0
    for _ in range(times):
        x += 1
    return x


def takes_turns() -> dict[str, int]:
    """Python, and code without the GIL, some 40 us each: how often the former was met in which state."""
    tries = []
    for _ in range(20):  # CPythons differ by half in how long they take for it
        start_ns = time.perf_counter_ns()
        count_in_python(10_000)
        tries.append(time.perf_counter_ns() - start_ns)
    times = max(1, 10_000 * 40_000 // min(tries))
    truth.begin()
    truth.start_sampler(5_000_000)  # what a look needs has left the caches by the next one
    truth.watch_this_thread()
    truth.watch(truth.this_thread())
    events: list[dict[str, Any]] = []
    give_up_ns = truth.now_ns() + 30_000_000_000
    while len(events) < 300 and truth.now_ns() < give_up_ns:
        for _ in range(1_000):
            count_in_python(times)
            truth.spin_without_gil(40_000)
        events += [e for e in truth.drain_sampler() if e["kind"] == SAMPLE]
    truth.stop_sampler()
    there: dict[str, int] = {"samples": len(events), "python": 0}
    for e in events:
        if any(name == "count_in_python" for _, name, _ in truth.stack(e["stack"])):
            there[STATES[e["what"]]] = there.get(STATES[e["what"]], 0) + 1
    truth.end()
    return there


def signs_beside() -> dict[str, list[int]]:
    """Of who ends each wait, and of one that does nothing: how often each BesideSign was seen."""
    lock = threading.Lock()
    signs = {"holds": [0] * 5, "stands_still": [0] * 5}
    with running(sleeps_with(lock), stands_still):
        truth.drain_sampler()
        for _ in range(20):
            with lock:
                pass
            time.sleep(0.002)
        for e in truth.drain_sampler():
            names = {name.rpartition(".")[2] for _, name, _ in truth.stack(e["stack"])} if e["kind"] == BESIDE else ()
            for name in signs.keys() & names:
                signs[name][e["what"]] += 1
    return signs


def no_gil_to_look_at() -> dict[str, Any]:
    """Without a look at the GIL, states and stacks of the watched thread are still there."""
    truth.begin()
    truth.start_sampler(1_000_000, look_at_gil=False)
    truth.watch_this_thread()
    truth.watch(truth.this_thread())
    time.sleep(0.2)
    events = truth.drain_sampler()
    truth.stop_sampler()
    stacks_read = sum(1 for e in events if any(name == "no_gil_to_look_at" for _, name, _ in truth.stack(e["stack"])))
    truth.end()
    return {"kinds": sorted({e["kind"] for e in events}), "samples": len(events), "stacks": stacks_read}


def next_look() -> dict[str, Any]:
    """What is asked of a sampler whose thread has mostly not begun: the earliest time that a sample can be of."""
    truth.begin()
    after_ns = []
    for _ in range(50):
        before_ns = truth.now_ns()
        truth.start_sampler(10_000_000)
        after_ns.append(truth.sampler_next_ns() - before_ns)
        truth.stop_sampler()
    truth.end()
    return {"after_ns": after_ns}
