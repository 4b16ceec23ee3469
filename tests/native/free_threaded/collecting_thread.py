"""A thread collects garbage again and again, which stops the training loop without a GIL. Prints how much of the loop's
time that took, as the loop itself found between two looks at the clock."""

from __future__ import annotations

import gc
import sys
import threading
import time

import trainperf
from truth import tell

SHORTEST_NS = 100_000
objects = [[i] for i in range(150_000)]
stop = threading.Event()
paused_ns = 0


def collect_results() -> None:
    while not stop.is_set():
        gc.collect()  # trouble
        time.sleep(0.004)


def forward(until_ns: int) -> None:
    global paused_ns
    before = time.perf_counter_ns()
    while before < until_ns:
        now = time.perf_counter_ns()
        if now - before > SHORTEST_NS:
            paused_ns += now - before
        before = now


gc.disable()
thread = threading.Thread(target=collect_results, name="metrics-writer")
thread.start()
with trainperf.watch(sys.argv[1], verbose=False) as watch:
    begin = time.perf_counter_ns()
    for _ in range(150):
        with watch.phase("forward"):
            forward(time.perf_counter_ns() + 10_000_000)
        watch.step()
    whole_ns = time.perf_counter_ns() - begin
stop.set()
thread.join()
tell("stop-the-world", paused_ns / whole_ns, "metrics-writer")
