"""Eight threads mark without a pause while twelve watches begin and end on the main one. Prints what came of it."""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable

import trainperf
from trainperf import _native

logger = logging.getLogger("many_threads")
logger.addHandler(logging.NullHandler())
logger.propagate = False
logger.setLevel(logging.INFO)

THREADS = 8
stop = threading.Event()
errors: list[str] = []


def nested() -> None:
    with trainperf.phase("forward"), trainperf.phase("validation"):
        pass
    trainperf.step()


def logs() -> None:
    for i in range(20):
        logger.info("record %d", i)


def collects() -> None:
    cycle: list[object] = []
    cycle.append(cycle)
    del cycle
    gc.collect(0)


def bare() -> None:
    _native.begin(_native.FETCH, 1)
    _native.end(_native.FETCH)
    _native.begin(_native.BACKWARD)
    _native.end(_native.BACKWARD)
    _native.flags_waiting()


def short_lived() -> None:
    thread = threading.Thread(target=nested)
    thread.start()
    thread.join()


def body(acts: list[Callable[[], None]]) -> None:
    with contextlib.suppress(StopIteration):
        for act in itertools.cycle(acts):
            if stop.is_set():
                return
            try:
                act()
            except Exception:
                errors.append(traceback.format_exc())
                return


def one_id_each() -> bool:
    """Objects that are met on many threads at the same time get one number each, and no number twice."""
    from trainperf.hooks.context import Objects

    class Session:
        def __init__(self) -> None:
            self.told: list[int] = []

        def set_object(self, number: int, kind: str, text: str) -> None:
            self.told.append(number)

    class Thing:
        pass

    session = Session()
    objects = Objects(session)  # type: ignore[arg-type]
    things = [Thing() for _ in range(200)]
    barrier = threading.Barrier(THREADS)
    found: list[list[int]] = []

    def ask() -> None:
        barrier.wait()
        found.append([objects.id_of(thing, "module", lambda: {"class": "Thing"}) for thing in things])

    threads = [threading.Thread(target=ask) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    numbers = found[0]
    return all(of == numbers for of in found) and len(set(numbers)) == len(things) == len(session.told)


acts = [nested, logs, collects, bare, short_lived]
threads = [threading.Thread(target=body, args=(acts[i % 5 :] + acts[: i % 5],)) for i in range(THREADS)]
for thread in threads:
    thread.start()
steps: list[int] = []
unlike: list[int] = []
for number in range(12):
    with trainperf.watch(f"{sys.argv[1]}.{number}", verbose=False) as watch:
        deadline = time.monotonic() + 0.15
        while time.monotonic() < deadline:
            with watch.phase("forward"):
                sum(range(2000))
            watch.step()
    run = watch.run
    steps.append(run.step_count)
    if sum(run.cause_ns(cause) for cause in _native.CAUSES) != run.wall_ns:
        unlike.append(number)
stop.set()
for thread in threads:
    thread.join()
print(
    json.dumps(
        {
            "gil": sys._is_gil_enabled(),
            "watches": len(steps),
            "steps": steps,
            "errors": errors,
            "unlike": unlike,
            "one_id_each": one_id_each(),
        }
    )
)
