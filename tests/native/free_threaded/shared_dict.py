"""A thread copies a large dict that the training loop writes to, which waits for its lock without a GIL. Prints how
much of the loop's time that took, as the loop itself found between two looks at the clock."""

from __future__ import annotations

import sys
import threading
import time

import trainperf
from truth import tell

SHORTEST_NS = 100_000
results: dict[int, int] = dict.fromkeys(range(300_000), 0)
stop = threading.Event()
waited_ns = 0


def save_results() -> None:
    while not stop.is_set():
        results.copy()
        time.sleep(0.003)


def add_results(until_ns: int) -> None:
    global waited_ns
    before = time.perf_counter_ns()
    while before < until_ns:
        results[before % 1000] = 1  # trouble
        now = time.perf_counter_ns()
        if now - before > SHORTEST_NS:
            waited_ns += now - before
        before = now


thread = threading.Thread(target=save_results, name="results-saver")
thread.start()
with trainperf.watch(sys.argv[1], verbose=False) as watch:
    begin = time.perf_counter_ns()
    for _ in range(150):
        with watch.phase("forward"):
            add_results(time.perf_counter_ns() + 10_000_000)
        watch.step()
    whole_ns = time.perf_counter_ns() - begin
stop.set()
thread.join()
tell("object-lock", waited_ns / whole_ns, "results-saver")
