"""What each thread of the process used of the CPUs while the watch ran."""

from __future__ import annotations

import json
import os
import sys
import threading

from trainperf.hooks.context import Context
from trainperf.hooks.threads import kernel_name

_OURS = ("trainperf", "tp-sampler")
_MOST = 64  # threads of a kind that are written down by themselves
_LEAST_MS = 1
_ONE = frozenset({"1", "0", "false", "off", "no", "f", "n"})
# Libraries with threads of their own: what says how many there are, and what to set it to. In the order in which the
# libraries look.
_POOLS: dict[str, tuple[tuple[str, ...], str]] = {
    "tokenizers": (("TOKENIZERS_PARALLELISM", "RAYON_NUM_THREADS"), "TOKENIZERS_PARALLELISM=false"),
    "numpy": (("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "OPENBLAS_NUM_THREADS=1"),
    "sklearn": (("OMP_NUM_THREADS",), "OMP_NUM_THREADS=1"),
    "faiss": (("OMP_NUM_THREADS",), "OMP_NUM_THREADS=1"),
    "polars": (("POLARS_MAX_THREADS",), "POLARS_MAX_THREADS=1"),
    "numba": (("NUMBA_NUM_THREADS",), "NUMBA_NUM_THREADS=1"),
    "cv2": ((), "cv2.setNumThreads(0)"),
}


class ThreadCpuHook:
    """Reads the kernel's counts twice: before the first step and after the last."""

    name = "thread_cpu"
    needs = ""

    def __init__(self) -> None:
        self._context: Context | None = None
        self._before: dict[int, int] = {}

    def install(self, context: Context) -> None:
        self._before = cpu_by_thread()
        self._context = context

    def remove(self) -> None:
        """Threads that ended before are not in it."""
        context, self._context = self._context, None
        if context is None:
            return
        try:
            context.session.set_meta("thread_cpu", json.dumps(self._used()))
            context.session.set_meta("thread_pools", json.dumps({"unlimited": unlimited_pools()}))
        except Exception as error:
            context.fail(self.name, error)

    def _used(self) -> dict[str, list[tuple[int, str, int]]]:
        """{"python": [(native id, name, ms), ...], "native": the same}, the busiest first; of more than _MOST of a kind
        the last stands for the rest."""
        # enumerate() would take the lock that thread starts hold.
        known = tuple(threading._active.values())  # type: ignore[attr-defined]
        # A library's thread that has once asked for the current one is a dummy there.
        named = {t.native_id: t.name for t in known if not isinstance(t, threading._DummyThread)}
        used = {tid: (now - self._before.get(tid, 0)) // 1_000_000 for tid, now in cpu_by_thread().items()}
        found: dict[str, list[tuple[int, str, int]]] = {"python": [], "native": []}
        for tid in sorted(used, key=lambda tid: -used[tid]):
            kernels = kernel_name(tid)
            if used[tid] < _LEAST_MS or kernels in _OURS:
                continue
            threads = found["python" if tid in named else "native"]
            if len(threads) < _MOST:
                threads.append((tid, named.get(tid, kernels), used[tid]))
            else:
                threads[-1] = (0, "", threads[-1][2] + used[tid])
        return found


def unlimited_pools() -> list[tuple[str, str]]:
    """Imported libraries that start threads of their own and were not told to have one: (name, what tells it)."""
    found = []
    for library, (variables, setting) in _POOLS.items():
        said = next((os.environ[v] for v in variables if v in os.environ), "")
        if library in sys.modules and said.strip().lower() not in _ONE:
            found.append((library, setting))
    return found


def cpu_by_thread() -> dict[int, int]:
    """CPU time of the threads that this process has now, in ns, by native id; empty where the kernel does not tell."""
    found: dict[int, int] = {}
    try:
        threads = os.listdir("/proc/self/task")
    except OSError:
        return found
    for thread in threads:
        try:
            with open(f"/proc/self/task/{thread}/schedstat", "rb") as file:
                found[int(thread)] = int(file.read().split()[0])
        except (OSError, ValueError, IndexError):
            continue  # it has just ended
    return found
