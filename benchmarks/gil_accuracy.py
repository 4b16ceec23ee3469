"""Exact GIL waits against ground truth: C code times its own PyEval_RestoreThread while a thread hogs the GIL."""

from __future__ import annotations

import ctypes
import json
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.harness import Figure, median_interval, pinned
from benchmarks.step_overhead import watch

SOURCE = r"""
#include <stdint.h>
#include <time.h>
extern void* PyGILState_GetThisThreadState(void);
extern void PyEval_RestoreThread(void*);
extern void* PyEval_SaveThread(void);
static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}
static void rest(int64_t us) {
  struct timespec t = {us / 1000000, us % 1000000 * 1000};
  nanosleep(&t, 0);
}
/* Called without the GIL: takes it `times` times, and returns how long that took. Sets *done before it returns, then
   leaves the hog time to end, so that the caller's own acquire is no wait. */
int64_t waited(int times, int64_t rest_us, volatile int* done) {
  void* state = PyGILState_GetThisThreadState();
  int64_t sum = 0;
  rest(50000);
  for (int i = 0; i < times; i++) {
    int64_t start = now();
    PyEval_RestoreThread(state);
    sum += now() - start;
    PyEval_SaveThread();
    rest(rest_us);
  }
  *done = 1;
  rest(100000);
  return sum;
}
"""


def build(folder: Path) -> ctypes.CDLL:
    (folder / "truth.c").write_text(SOURCE)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", "truth.so", "truth.c"], cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "truth.so"))
    library.waited.restype = ctypes.c_int64
    library.waited.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.POINTER(ctypes.c_int)]
    return library


def list_of(hold_ms: float) -> list[float]:
    """A list that json.dumps, which holds the GIL throughout, takes `hold_ms` to write."""
    size = 20_000
    for _ in range(4):
        values = [0.5] * size
        start = time.thread_time_ns()
        json.dumps(values)
        size = max(100, int(size * hold_ms * 1e6 / (time.thread_time_ns() - start)))
    return [0.5] * size


def difference(library: ctypes.CDLL, hold_ms: float, times: int) -> float:
    """Per cent by which the reported wait of one thread is off the truth."""
    values, done, truth = list_of(hold_ms), ctypes.c_int(0), [0]

    def measure() -> None:
        with pinned(0):
            truth[0] = library.waited(times, int(hold_ms * 300), ctypes.byref(done))

    def hog() -> None:
        with pinned(1):
            while not done.value:
                json.dumps(values)
                time.sleep(hold_ms / 1e4)

    with watch() as run:
        threads = [threading.Thread(target=measure, name="measured"), threading.Thread(target=hog, name="hog")]
        for thread in threads:
            thread.start()
        native = threads[0].native_id
        for thread in threads:
            thread.join()
    reported = next((t.gil_wait_ns for t in run.run.threads.values() if t.native_tid == native), 0)
    return 100.0 * (reported - truth[0]) / truth[0]


def figures(*, quick: bool = False) -> list[Figure]:
    result = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            library = build(Path(folder))
        except (OSError, subprocess.CalledProcessError) as error:
            return [Figure("GIL wait against ground truth", None, note=f"the C helper cannot be built: {error}")]
        for hold_ms, times in ((20.0, 40), (2.0, 200)):
            values = [difference(library, hold_ms, times) for _ in range(3 if quick else 11)]
            value, low, high = median_interval(values)
            name = f"GIL wait against ground truth, {hold_ms:g} ms holds (error)"
            span = f"{value:+.3f} %, {low:+.3f} .. {high:+.3f}; {len(values)} x {times} waits"
            sizes = sorted((abs(low), abs(high)))
            inner = 0.0 if low <= 0 <= high else sizes[0]
            result.append(Figure(name, abs(value), "%", inner, sizes[1], 0.5, note=span))
    return result
