"""Metrics go to an SQLite file whose write lock another process holds half of the time. FIXED=1: many at once."""

import multiprocessing
import os
import sqlite3
import tempfile
import time

from _common import FIXED, Classifier, Clock, tell

STEPS, EACH = 260, 100 if FIXED else 1


def index_for_ever(path, ready):
    """What a dashboard does to the same file."""
    database = sqlite3.connect(path, isolation_level=None, timeout=30)
    database.execute("CREATE TABLE IF NOT EXISTS seen (time REAL)")
    while True:
        database.execute("BEGIN IMMEDIATE")
        ready.set()
        time.sleep(0.010)
        database.execute("COMMIT")
        time.sleep(0.012)


def main():
    training, writing = Classifier(), Clock()
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        ready = context.Event()
        shared = os.path.join(folder, "metrics.db")
        other = context.Process(target=index_for_ever, args=(shared, ready), daemon=True)
        other.start()
        ready.wait()
        database = sqlite3.connect(shared, timeout=30)
        database.execute("CREATE TABLE loss (step INTEGER, value REAL)")
        database.commit()
        rows, started = [], time.perf_counter_ns()
        for step in range(STEPS * (6 if FIXED else 1)):
            loss = training.step(*training.batch())
            rows.append((step, loss.item()))
            if len(rows) >= EACH:
                with writing:
                    database.executemany("INSERT INTO loss VALUES (?, ?)", rows)  # trouble
                    database.commit()  # trouble
                rows.clear()
        wall = time.perf_counter_ns() - started
        other.terminate()
        other.join()
    tell("blocked", writing.off_cpu_ns, wall)


if __name__ == "__main__":
    main()
