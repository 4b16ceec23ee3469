"""Garbage collections, by a callback in C: no Python frame runs in a collection."""

from __future__ import annotations

import gc
from typing import Any

from trainperf.hooks.context import Context


class GcHook:
    name = "gc"
    needs = ""

    def __init__(self) -> None:
        self._callback: Any = None

    def install(self, context: Context) -> None:
        self._callback = context.native.gc_callback
        gc.callbacks.append(self._callback)

    def remove(self) -> None:
        for i, callback in enumerate(gc.callbacks):
            if callback is self._callback:
                del gc.callbacks[i]
                return
