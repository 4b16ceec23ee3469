"""What a tick of the sampler and the hook cost."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

from common import pin, running, truth


def deep_cost() -> dict[str, Any]:
    """What a tick costs with 20 frames on both stacks."""
    truth.begin()
    truth.start_sampler(4_000_000)
    truth.watch_this_thread()
    truth.watch(truth.this_thread())

    def down(depth: int, body: Callable[[], object]) -> object:
        return down(depth - 1, body) if depth else body()

    def deep_hog(stop: threading.Event) -> None:
        def body() -> None:
            while not stop.is_set():
                truth.spin(300_000)

        down(20, body)

    costs = []
    with running(deep_hog):
        for _ in range(4):
            before = truth.sampler_stats()
            down(20, lambda: [truth.spin_without_gil(300_000) for _ in range(250)])
            after = truth.sampler_stats()
            costs.append((after["cpu_ns"] - before["cpu_ns"]) / (after["samples"] - before["samples"]))
    stats = truth.sampler_stats()
    truth.stop_sampler()
    truth.end()
    return {"ns_per_tick": costs, "stats": stats}


def start_cost() -> dict[str, Any]:
    """What the first samples of a run cost where each finds 100 frames that it has not seen together before."""
    truth.begin()
    choose = random.Random(0).random

    def left(depth: int) -> None:
        down(depth - 1)

    def right(depth: int) -> None:
        down(depth - 1)

    def down(depth: int) -> None:
        if depth == 0:
            truth.spin_without_gil(1_000_000)
        elif choose() < 0.5:
            left(depth)
        else:
            right(depth)

    start = time.monotonic_ns()
    truth.start_sampler(16_000_000)
    truth.watch_this_thread()
    truth.watch(truth.this_thread())
    while time.monotonic_ns() < start + 700_000_000:
        down(50)
    took = time.monotonic_ns() - start
    stats = truth.sampler_stats()
    truth.stop_sampler()
    truth.end()
    return {"samples": stats["samples"], "share": stats["cpu_ns"] / took}


def read_cost() -> dict[str, Any]:
    """What the read of a stack takes, in us of CPU, by how many calls deep it is: of a thread that stands still, and of
    one that goes on calling small functions there; calls by Python, and each through C (`map`)."""
    truth.begin()

    def direct(depth: int, body: Callable[[], object]) -> object:
        return direct(depth - 1, body) if depth else body()

    def through_c(depth: int, body: Callable[[], object]) -> object:
        return next(map(through_c, (depth - 1,), (body,))) if depth else body()

    def small() -> None:
        pass

    def still(stop: threading.Event) -> None:
        stop.wait()

    def busy(stop: threading.Event) -> None:
        while not stop.is_set():
            small()

    result: dict[str, Any] = {}
    for body in (still, busy):
        for call in (direct, through_c):
            for depth in (3, 10, 30, 80):
                with running(lambda stop, body=body, call=call, depth=depth: call(depth, lambda: body(stop))):
                    (ident,) = (t.ident for t in threading.enumerate() if t is not threading.current_thread())
                    time.sleep(0.02)
                    took = []
                    for _ in range(15):
                        begin = time.thread_time_ns()
                        truth.read_stacks(ident, 2000, "vm_read")
                        took.append((time.thread_time_ns() - begin) / 2000)
                result[f"{body.__name__} {call.__name__} {depth}"] = round(sorted(took)[7] / 1e3, 2)
    truth.end()
    return result


def cost() -> dict[str, Any]:
    """An uncontended release and acquire, and how fast two threads fight for the GIL, with the hook and without."""
    pin(0)
    truth.begin()

    def throughput() -> float:
        counts = [0, 0]

        def fight(index: int) -> Callable[[threading.Event], None]:
            def body(stop: threading.Event) -> None:
                pin(index)
                n = 0
                while not stop.is_set():
                    truth.spin(20_000)
                    truth.spin_without_gil(10_000)
                    n += 1
                counts[index] = n

            return body

        begin = truth.now_ns()
        with running(fight(0), fight(1)):
            time.sleep(0.4)
        return sum(counts) / (truth.now_ns() - begin)

    pairs: dict[str, list[float]] = {"without": [], "with": []}
    rates: dict[str, list[float]] = {"without": [], "with": []}
    for rounds, measure, into in ((20, lambda: truth.uncontended_ns(20_000), pairs), (5, throughput, rates)):
        for _ in range(rounds):
            into["without"].append(measure())
            truth.install()
            into["with"].append(measure())
            stats = truth.waits_stats()
            truth.uninstall()
    truth.end()

    def middle(values: list[float]) -> float:
        return sorted(values)[len(values) // 2]

    return {
        "uncontended_ns": {name: middle(values) for name, values in pairs.items()},
        "throughput_ratio": middle([b / a for a, b in zip(rates["without"], rates["with"], strict=True)]),
        "cost_per_call_ns": stats["cost_ns"] / max(1, stats["hook_calls"]),
        "stats": stats,
    }
