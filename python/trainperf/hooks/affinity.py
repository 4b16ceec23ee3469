"""Who changes the CPUs that this process may use: calls of os.sched_setaffinity, by place."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

from trainperf.hooks.base import PatchHook
from trainperf.hooks.context import Context
from trainperf.hooks.patch import AnyFunction

_MOST = 32  # calls that are kept: the latest
_SETTINGS = ("OMP_PROC_BIND", "OMP_PLACES", "KMP_AFFINITY", "GOMP_CPU_AFFINITY")
_UNBOUND = ("", "false", "none", "disabled")


class AffinityHook(PatchHook):
    name = "affinity"
    needs = ""

    def __init__(self) -> None:
        super().__init__()
        self._context: Context | None = None
        self._calls: list[tuple[int, str, int, str, int]] = []

    def install(self, context: Context) -> None:
        self._context = context
        found = affinity_settings()
        if found:
            context.session.set_meta("affinity_settings", json.dumps(found))
        if hasattr(os, "sched_setaffinity"):  # Linux
            self.patch(os, "sched_setaffinity", self._wrap)

    def _wrap(self, original: AnyFunction) -> AnyFunction:
        process = os.getpid()

        def sched_setaffinity(pid: int, mask: Any, /) -> None:
            original(pid, mask)
            # A forked worker's calls are its own.
            if self.switch.on and os.getpid() == process and pid in (0, process, threading.get_native_id()):
                self._note(sys._getframe(1))

        return sched_setaffinity

    def _note(self, frame: Any) -> None:
        context = self._context
        if context is None:
            return
        try:
            code = frame.f_code
            name = getattr(code, "co_qualname", code.co_name)
            count = len(os.sched_getaffinity(0))
            self._calls.append((time.monotonic_ns(), code.co_filename, frame.f_lineno, name, count))
            del self._calls[:-_MOST]
            context.session.set_meta("affinity_calls", json.dumps(self._calls))
        except Exception as error:
            context.fail(self.name, error)


def affinity_settings() -> dict[str, str]:
    """Variables that are set, and make an OpenMP library pin the threads of who imports it."""
    bound = {name: os.environ.get(name, "") for name in _SETTINGS}
    return {name: value for name, value in bound.items() if value.strip().lower().rpartition(",")[2] not in _UNBOUND}
