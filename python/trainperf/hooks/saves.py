"""Checkpoints: what saves inside of what saves (a framework's save, the torch.save in it) is one checkpoint."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainperf.hooks.apart import Apart
    from trainperf.hooks.core import Native
    from trainperf.hooks.patch import AnyFunction, Switch


class Saves:
    """The outermost is the CHECKPOINT bracket, with the bytes of all that was written in it. Thread-safe."""

    def __init__(self, native: Native, apart: Apart) -> None:
        self._native = native
        self._apart = apart
        self._written: dict[int, int] = {}  # by thread that is saving: bytes so far
        self._wrappers: weakref.WeakSet[Any] = weakref.WeakSet()

    def outermost(self) -> bool:
        """Whether what begins now is not inside of another one."""
        return threading.get_ident() not in self._written

    def begin(self) -> None:
        """The outermost's; in the try whose finally ends it, or an interrupt leaves this thread saving for good."""
        self._written[threading.get_ident()] = 0
        self._apart.begin()
        self._native.begin(self._native.CHECKPOINT)

    def end(self, outermost: bool, written: int = -1) -> None:
        """`written`: bytes, if the function that saved knows them by itself; -1: those that were written in it."""
        thread = threading.get_ident()
        if not outermost:
            self._written[thread] = self._written.get(thread, 0) + max(written, 0)
            return
        if thread not in self._written:
            return  # interrupted before it began
        inside = self._written.pop(thread)
        self._native.end(self._native.CHECKPOINT, written if written >= 0 else inside or -1)
        self._apart.end()

    def unwrapped(self, function: AnyFunction) -> AnyFunction:
        """Without what around() put around it: a module that is imported during the watch has taken that along."""
        while function in self._wrappers:
            function = function.__wrapped__  # type: ignore[attr-defined]  # by Patch
        return function

    def around(self, original: AnyFunction, switch: Switch, target: Callable[..., Any] | None = None) -> AnyFunction:
        """`target` of the function's arguments: the file that it writes, if it writes one itself."""

        def save(*args: Any, **kwargs: Any) -> Any:
            if not switch.on:
                return original(*args, **kwargs)
            written = -1
            outermost = self.outermost()
            try:
                if outermost:
                    self.begin()
                result = original(*args, **kwargs)
                if target is not None:
                    written = file_size(target(*args, **kwargs))
                return result
            finally:
                self.end(outermost, written)

        self._wrappers.add(save)
        return save


def file_size(path: object) -> int:
    """-1: not known."""
    try:
        return os.path.getsize(path) if isinstance(path, (str, os.PathLike)) else -1
    except OSError:
        return -1
