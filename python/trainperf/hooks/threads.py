"""Names of the threads that the core has seen."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from trainperf.hooks.naming import NamingHook

if TYPE_CHECKING:
    from trainperf.hooks.core import Session


class ThreadNamesHook(NamingHook):
    name = "threads"

    def unnamed(self, session: Session) -> Sequence[int]:
        return session.unnamed_threads()

    def names(self, unnamed: Sequence[int]) -> Mapping[int, str]:
        # enumerate() would take the lock that thread starts hold.
        named = {
            thread.native_id: thread.name
            for thread in tuple(threading._active.values())  # type: ignore[attr-defined]
            if not isinstance(thread, threading._DummyThread)
        }
        # In a forked child CPython goes on with the number that its thread had in the parent.
        named[os.getpid()] = threading.main_thread().name
        return {native_tid: named.get(native_tid) or kernel_name(native_tid) for native_tid in unnamed}

    def tell(self, session: Session, number: int, name: str) -> None:
        session.name_thread(number, name)


def kernel_name(native_tid: int) -> str:
    """A thread that is not Python's: autograd's pt_autograd_0, a loader's, a library's."""
    try:
        with open(f"/proc/self/task/{native_tid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:  # gone, or no /proc
        return ""
