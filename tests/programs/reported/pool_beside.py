"""A Pool prepares the next epoch on the one CPU that training may use."""

import json
import multiprocessing
import os
import time

from _common import FIXED, Classifier, delay_ns, for_seconds


def prepare(seed: int) -> int:
    total, begin = 0, time.thread_time()
    while time.thread_time() - begin < 0.05:  # trouble
        total += seed * 3 % 7  # trouble
    return total


def main() -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    trainer = Classifier(width=1024)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        if not FIXED:
            pool.map_async(prepare, range(4000), chunksize=1)
        waited, started = delay_ns(), time.perf_counter_ns()
        for _ in for_seconds(8):
            trainer.step(*trainer.batch())
        wall = time.perf_counter_ns() - started
        told = (
            {"finding": None} if FIXED else {"finding": "descheduled", "share": round((delay_ns() - waited) / wall, 3)}
        )
        print("TRUTH " + json.dumps(told))
        pool.terminate()


if __name__ == "__main__":
    main()
