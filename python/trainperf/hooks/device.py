"""Whether the loop feeds a device."""

from __future__ import annotations

import sys

from trainperf.hooks.context import Context


class DeviceHook:
    """Sets meta feeds_device to 1 once CUDA has been initialised. Never initialises it."""

    name = "device"
    needs = "torch"

    def __init__(self) -> None:
        self._context: Context | None = None

    def install(self, context: Context) -> None:
        self._context = context
        context.ticker.add(self.name, self.look)

    def look(self) -> None:
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if self._context is not None and cuda is not None and cuda.is_initialized():
            self._context.session.set_meta("feeds_device", "1")
            self._context.ticker.discard(self.name)

    def remove(self) -> None:
        self._context = None
