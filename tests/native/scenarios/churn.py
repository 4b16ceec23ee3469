"""Stacks of a thread whose functions are called and return faster than its stack can be read."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from common import SAMPLE, running, truth


class Key:
    """Compared by way of C code, which calls Python code, which calls C code."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __lt__(self, other: Key) -> bool:
        return self.key < other.key

    @property
    def key(self) -> int:
        return wide(self.value)


def wide(value: int) -> int:
    a = b = c = d = e = f = g = h = value
    return max((a, b, c, d, e, f, g, h), key=narrow)


def narrow(value: int) -> int:
    return value


def pairs() -> Iterator[list[Key]]:
    for i in range(20):
        yield sorted([Key(i), Key(i + 1)], key=key_of)


def key_of(key: Key) -> int:
    return key.key


def loop() -> None:
    for first, second in pairs():
        assert first < second


# Which function may call which, by their names.
CALLERS = {
    "__init__": {"pairs"},
    "__lt__": {"loop"},
    "key": {"__lt__", "key_of"},
    "wide": {"key"},
    "narrow": {"wide"},
    "pairs": {"loop"},
    "key_of": {"pairs"},
}


def inside(stack: int) -> list[str]:
    """The functions of this file on it, innermost first."""
    return [name.rpartition(".")[2] for file, name, _ in truth.stack(stack) if file == __file__]


def churn_samples() -> dict[str, Any]:
    """In how many samples of such a thread its loop is seen."""
    truth.begin()
    truth.start_sampler(1_000_000)
    truth.watch_this_thread()
    truth.watch(truth.this_thread())
    end = time.monotonic() + 1.5
    truth.drain_sampler()
    while time.monotonic() < end:
        loop()
    events = [e for e in truth.drain_sampler() if e["kind"] == SAMPLE]
    stats = truth.sampler_stats()
    truth.stop_sampler()
    seen = sum("loop" in inside(e["stack"]) for e in events)
    truth.end()
    return {"samples": len(events), "seen": seen, "stats": stats}


def churn_reads() -> dict[str, int]:
    """How many reads show a function below one that never calls it."""
    truth.begin()

    def body(stop: threading.Event) -> None:
        while not stop.is_set():
            loop()

    counts = {"read": 0, "rejected": 0, "wrong": 0}
    with running(body):
        (thread,) = (t for t in threading.enumerate() if t is not threading.current_thread())
        while sys._current_frames()[thread.ident].f_code.co_name not in CALLERS:
            time.sleep(0.001)
        for _ in range(40):
            for stack, times in truth.read_stacks(thread.ident, 500, "vm_read")[0].items():
                names = inside(stack)
                callers = [*names[1:], "body"][: len(names)]
                counts["read"] += times
                counts["rejected"] += times if stack == 0 else 0
                counts["wrong"] += times * any(
                    by not in CALLERS.get(name, {by}) for name, by in zip(names, callers, strict=True)
                )
    truth.end()
    return counts
