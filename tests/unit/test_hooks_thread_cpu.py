"""What each thread used of the CPUs during a watch: which is Python's, which a library's, and what limits libraries."""

from __future__ import annotations

import _thread
import json
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator

import pytest
import torch
from recorder import Session
from trainperf import _native
from trainperf.hooks import Context
from trainperf.hooks.thread_cpu import ThreadCpuHook, unlimited_pools

BURN_MS = 100


def burn(ready: threading.Event, done: threading.Event, ms: int) -> None:
    while time.thread_time_ns() < ms * 1_000_000:
        pass
    ready.set()
    done.wait(60)


@pytest.fixture
def burner() -> Iterator[Callable[[str], None]]:
    done = threading.Event()

    def start(name: str) -> None:
        ready = threading.Event()
        threading.Thread(target=burn, args=(ready, done, BURN_MS), name=name, daemon=True).start()
        assert ready.wait(60)

    yield start
    done.set()


def used(hook: ThreadCpuHook, session: Session) -> dict[str, dict[str, int]]:
    hook.remove()
    found = json.loads(session.meta["thread_cpu"])
    return {kind: {name: ms for _, name, ms in threads} for kind, threads in found.items()}


def test_only_what_threads_use_from_the_install_on_counts(burner: Callable[[str], None]) -> None:
    burner("earlier")
    session, hook = Session(), ThreadCpuHook()
    hook.install(Context(_native, session))
    burner("later")
    python = used(hook, session)["python"]
    assert 0.9 * BURN_MS <= python["later"] <= 1.5 * BURN_MS and "earlier" not in python


def test_a_librarys_threads_are_no_threads_of_python() -> None:
    """torch starts its own for the first large operation of this size."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    session, hook = Session(), ThreadCpuHook()
    hook.install(Context(_native, session))
    try:
        a = torch.randn(512, 512)
        start = time.monotonic()
        while time.monotonic() < start + 0.3:
            a = torch.tanh(a @ a)
        hook.remove()
    finally:
        torch.set_num_threads(threads)
    found = json.loads(session.meta["thread_cpu"])
    assert threading.get_native_id() in [tid for tid, _, _ in found["python"]]
    assert sum(ms for _, _, ms in found["native"]) >= 10
    assert not {tid for tid, _, _ in found["native"]} & {t.native_id for t in threading.enumerate()}


def test_a_librarys_thread_that_logs_is_still_no_thread_of_python() -> None:
    """As autograd's, which runs the hooks of tensors."""
    session, hook = Session(), ThreadCpuHook()
    hook.install(Context(_native, session))
    tids: list[int] = []
    done = threading.Event()

    def work() -> None:
        threading.current_thread()  # as a log record asks for it
        while time.thread_time_ns() < BURN_MS * 1_000_000:
            pass
        tids.append(threading.get_native_id())
        done.wait(60)

    _thread.start_new_thread(work, ())
    while not tids:
        time.sleep(0.001)
    hook.remove()
    done.set()
    found = json.loads(session.meta["thread_cpu"])
    assert tids[0] in [tid for tid, _, _ in found["native"]] and "Dummy" not in session.meta["thread_cpu"]


def test_libraries_that_were_told_to_have_one_thread_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("TOKENIZERS_PARALLELISM", "RAYON_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setitem(sys.modules, "tokenizers", types.ModuleType("tokenizers"))
    monkeypatch.setitem(sys.modules, "numpy", types.ModuleType("numpy"))
    assert ("tokenizers", "TOKENIZERS_PARALLELISM=false") in unlimited_pools()
    assert ("numpy", "OPENBLAS_NUM_THREADS=1") in unlimited_pools()
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "False")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert not {"tokenizers", "numpy"} & {library for library, _ in unlimited_pools()}
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "8")  # before the others
    assert ("numpy", "OPENBLAS_NUM_THREADS=1") in unlimited_pools()
