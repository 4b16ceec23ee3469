"""Whether the loop feeds a device, and whether its process exchanges anything with others."""

from __future__ import annotations

import sys

from trainperf.hooks.context import Context
from trainperf.meta import process_group


class DeviceHook:
    """Sets meta feeds_device to 1 once CUDA has been initialised, and process_group once torch.distributed has been.
    Never initialises either."""

    name = "device"
    needs = "torch"

    def __init__(self) -> None:
        self._context: Context | None = None
        self._wanted: set[str] = set()

    def install(self, context: Context) -> None:
        self._context = context
        self._wanted = {"feeds_device", "process_group"}
        context.ticker.add(self.name, self.look)

    def look(self) -> None:
        if self._context is None:
            return
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if "feeds_device" in self._wanted and cuda is not None and cuda.is_initialized():
            self._say("feeds_device")
        if "process_group" in self._wanted and process_group():
            self._say("process_group")

    def _say(self, key: str) -> None:
        assert self._context is not None
        self._context.session.set_meta(key, "1")
        self._wanted.discard(key)
        if not self._wanted:
            self._context.ticker.discard(self.name)

    def remove(self) -> None:
        """After a last look, for what came since the last tick."""
        context = self._context
        if context is None:
            return
        try:
            self.look()
        except Exception as error:
            context.fail(self.name, error)
        finally:
            self._context = None
