"""Names of the threads that the core has seen."""

from __future__ import annotations

import os
import threading

from trainperf.hooks.context import Context


class ThreadNamesHook:
    """Asked as a chore: on a step's thread, where Python's own table can be read without a lock."""

    name = "threads"
    needs = ""

    def __init__(self) -> None:
        self._context: Context | None = None

    def install(self, context: Context) -> None:
        self._context = context
        context.ticker.add(self.name, self.look)

    def look(self) -> None:
        if self._context is None:
            return
        session = self._context.session
        unnamed = session.unnamed_threads()
        if not unnamed:
            return
        # enumerate() would take the lock that thread starts hold.
        named = {
            thread.native_id: thread.name
            for thread in tuple(threading._active.values())  # type: ignore[attr-defined]
            if not isinstance(thread, threading._DummyThread)
        }
        # In a forked child CPython goes on with the number that its thread had in the parent.
        named[os.getpid()] = threading.main_thread().name
        for native_tid in unnamed:
            name = named.get(native_tid) or kernel_name(native_tid)
            if name:
                session.name_thread(native_tid, name)

    def remove(self) -> None:
        """The last look, for threads that came after the last tick."""
        context, self._context = self._context, None
        if context is not None:
            self._context = context
            try:
                self.look()
            except Exception as error:
                context.fail(self.name, error)
            self._context = None


def kernel_name(native_tid: int) -> str:
    """A thread that is not Python's: autograd's pt_autograd_0, a loader's, a library's."""
    try:
        with open(f"/proc/self/task/{native_tid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:  # gone, or no /proc
        return ""
