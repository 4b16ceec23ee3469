"""Which files a trial writes, and that none which was there before is lost: it ends before it writes one.

Reading is free, and so are new files, caches, devices and empty files (locks). What C++ or a subprocess writes is told
by no audit event; of torch.save, which does, it is asked beforehand. Where there is a sandbox none of it matters.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from trainperf.hooks.patch import AnyFunction, Patch

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC


class Guard:
    """`stop` is called with the path of a file that would be changed, and does not return."""

    def __init__(self, stop: Callable[[str], None], *, free: Sequence[str] = ()) -> None:
        """`free`: folders below which all may be written."""
        self._stop = stop
        self._pid = os.getpid()
        self._free = tuple(os.path.realpath(folder) + os.sep for folder in (*free, *_caches()))
        self._on = True
        self.made: dict[str, None] = {}  # files and folders that were not there before, in this order

    def install(self) -> None:
        sys.addaudithook(self._audit)

    def at_torch(self) -> None:
        import torch

        def save(original: AnyFunction) -> AnyFunction:
            def saved(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
                if self._on and isinstance(f, (str, os.PathLike)):
                    self._writes(os.fsdecode(f))
                return original(obj, f, *args, **kwargs)

            return saved

        Patch(torch, "save", save)
        Patch(torch.serialization, "save", save)

    def off(self) -> None:
        self._on = False

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._on or event not in _EVENTS or os.getpid() != self._pid:
            return
        try:
            for path in _EVENTS[event](args):
                self._writes(path)
        except (TypeError, ValueError, OSError):  # of an argument that the call itself will refuse
            return

    def _writes(self, path: str) -> None:
        path = os.path.realpath(path)
        if path.startswith(self._free) or f"{os.sep}__pycache__{os.sep}" in path:
            return
        try:
            found = os.lstat(path)
        except OSError:
            if os.path.isdir(os.path.dirname(path)):
                self.made[path] = None
            return
        if path in self.made or not stat.S_ISREG(found.st_mode) or found.st_size == 0:
            return
        self._stop(path)


def _opened(args: tuple[Any, ...]) -> list[str]:
    path, mode, flags = args[:3]
    if isinstance(path, int) or path is None:
        return []
    writes = any(c in mode for c in "wax+") if isinstance(mode, str) else bool((flags or 0) & _WRITES)
    return [os.fsdecode(path)] if writes else []


def _first(args: tuple[Any, ...]) -> list[str]:
    return [] if isinstance(args[0], int) else [os.fsdecode(args[0])]


def _both(args: tuple[Any, ...]) -> list[str]:
    return [os.fsdecode(args[0]), os.fsdecode(args[1])]


_EVENTS: dict[str, Callable[[tuple[Any, ...]], list[str]]] = {
    "open": _opened,
    "os.mkdir": _first,
    "os.remove": _first,
    "os.rename": _both,
    "os.truncate": _first,
}


def _caches() -> list[str]:
    """Folders whose content any program may replace at any time."""
    home = os.path.expanduser("~")
    named = [
        os.environ.get(name, "") for name in ("XDG_CACHE_HOME", "HF_HOME", "TORCH_HOME", "TORCHINDUCTOR_CACHE_DIR")
    ]
    inductor = os.path.join(tempfile.gettempdir(), f"torchinductor_{os.environ.get('USER', 'root')}")
    return ["/dev", "/proc", "/sys", f"{home}/.cache", f"{home}/.triton", inductor, *filter(None, named)]
