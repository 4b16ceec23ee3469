"""Two threads that fight for the GIL: what a watch takes from their throughput."""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from benchmarks.harness import Figure, paired_ratios, pinned, ratio_figure
from benchmarks.step_overhead import watch

SECONDS = 0.25


def fight(context: AbstractContextManager[Any]) -> float:
    """Rounds per second of two threads, each on its own CPU, that take turns in short pieces of pure Python."""
    rounds = [0, 0]
    ends = threading.Event()

    def contend(index: int) -> None:
        with pinned(index):
            count = 0
            while not ends.is_set():
                for _ in range(200):
                    pass
                time.sleep(0)  # gives the GIL up, and asks for it again
                count += 1
            rounds[index] = count

    with context:
        threads = [threading.Thread(target=contend, args=(index,)) for index in range(2)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        time.sleep(SECONDS)
        ends.set()
        for thread in threads:
            thread.join()
        return sum(rounds) / (time.perf_counter() - start)


def figures(*, quick: bool = False) -> list[Figure]:
    pairs = 10 if quick else 60
    ratios = paired_ratios(lambda: fight(nullcontext()), lambda: fight(watch()), pairs)
    same = paired_ratios(lambda: fight(nullcontext()), lambda: fight(nullcontext()), pairs)
    name = "throughput of two threads at the GIL, with / without"
    return [
        ratio_figure(f"{name}: trainperf", ratios, target=0.995, better="higher", note=f"{pairs} pairs"),
        ratio_figure(f"{name}: nothing against nothing", same, better="higher", note="the noise"),
    ]
