"""Which files a trial writes where there is no overlay: it ends before it changes one which was there before.

Reading is free, and so are new files, caches, devices and empty files (locks). Python's audit events tell what Python
code of the script's own process does, and no more: not what C++ (but torch.save, which is asked beforehand), another
process or a worker writes. Where there is an overlay none of it matters.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
import tempfile
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from trainperf.hooks.patch import AnyFunction, Patch

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC


class Guard:
    """`stop` is called with the path of what would be changed, and does not return."""

    def __init__(
        self, stop: Callable[[str], None], *, made: str, free: Sequence[str] = (), guarded: Sequence[str] = ()
    ) -> None:
        """`free`: folders below which all may be written, but in those that are `guarded`.

        `made`: a file for the paths that were not there before, in this order, which outlives this process.
        """
        self._stop = stop
        self._pid = os.getpid()
        self._free = tuple(os.path.realpath(folder) + os.sep for folder in (*free, "/dev", "/proc", "/sys"))
        self._guarded = tuple(os.path.realpath(folder) + os.sep for folder in guarded)
        self._on = True
        self._made: set[str] = set()
        self._told = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def install(self) -> None:
        sys.addaudithook(self._audit)

    def at_torch(self) -> None:
        import torch
        from torch.jit._script import RecursiveScriptModule

        def save(original: AnyFunction) -> AnyFunction:
            def saved(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
                if self._on and isinstance(f, (str, os.PathLike)):
                    self._changes(os.path.realpath(os.fsdecode(f)))
                return original(obj, f, *args, **kwargs)

            return saved

        for owner in (torch, torch.serialization, RecursiveScriptModule):
            Patch(owner, "save", save)

    def off(self) -> None:
        self._on = False

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._on or event not in _EVENTS or os.getpid() != self._pid:
            return
        try:
            for path in _EVENTS[event](args):
                self._changes(path)
        except (TypeError, ValueError, OSError):  # of an argument that the call itself will refuse
            return

    def _changes(self, path: str) -> None:
        """Of a file's content, or the entry of its folder: what it is, follows or is a link already."""
        if path.startswith(self._free) and not path.startswith(self._guarded):
            return
        if path in self._made or f"{os.sep}__pycache__{os.sep}" in path:
            return
        try:
            found = os.lstat(path)
        except OSError:
            if os.path.isdir(os.path.dirname(path)):
                self._made.add(path)
                os.write(self._told, json.dumps(path).encode() + b"\n")
            return
        if stat.S_ISREG(found.st_mode) and found.st_size == 0:
            return
        if stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode) or stat.S_ISLNK(found.st_mode):
            self._stop(path)


# What an event's arguments say: the paths that change. The content of a file is where a link leads to; an entry, which
# is made, moved or removed, is the link. A folder that exists is not changed by making it.


def _content(path: Any) -> Iterator[str]:
    if path is None or isinstance(path, int):
        return
    real = os.path.realpath(os.fsdecode(path))
    if not os.path.isdir(real):
        yield real


def _entry(path: Any, folder_fd: Any = -1) -> Iterator[str]:
    folder, name = os.path.split(os.path.normpath(os.fsdecode(path)))
    at = f"/proc/self/fd/{folder_fd}" if isinstance(folder_fd, int) and folder_fd >= 0 else ""
    yield os.path.join(os.path.realpath(os.path.join(at, folder)), name)


def _gone(path: Any, folder_fd: Any = -1) -> Iterator[str]:
    """Removed only where something is."""
    return (found for found in _entry(path, folder_fd) if os.path.lexists(found))


def _new(path: Any, folder_fd: Any = -1) -> Iterator[str]:
    """Made only where nothing is."""
    return (found for found in _entry(path, folder_fd) if not os.path.lexists(found))


def _opened(args: tuple[Any, ...]) -> Iterator[str]:
    path, mode, flags = args[:3]
    writes = any(c in mode for c in "wax+") if isinstance(mode, str) else bool((flags or 0) & _WRITES)
    if writes:
        yield from _content(path)


def _renamed(args: tuple[Any, ...]) -> Iterator[str]:
    yield from _gone(args[0], *args[2:3])
    yield from _entry(args[1], *args[3:4])


def _database(args: tuple[Any, ...]) -> Iterator[str]:
    name = os.fsdecode(args[0])
    if name.startswith("file:") and not os.path.exists(name):
        parts = urllib.parse.urlsplit(name)
        name = "" if "mode=ro" in parts.query or "immutable=1" in parts.query else urllib.parse.unquote(parts.path)
    if name not in ("", ":memory:"):
        yield from _content(name)


_EVENTS: dict[str, Callable[[tuple[Any, ...]], Iterator[str]]] = {
    "open": _opened,
    "os.mkdir": lambda args: _new(args[0], *args[2:3]),
    "os.remove": lambda args: _gone(*args[:2]),
    "os.rmdir": lambda args: _gone(*args[:2]),
    "os.rename": _renamed,
    "os.symlink": lambda args: _new(args[1], *args[2:3]),
    "os.link": lambda args: _new(args[1], *args[3:4]),
    "os.truncate": lambda args: _content(args[0]),
    "shutil.rmtree": lambda args: _gone(*args[:2]),
    "sqlite3.connect": _database,
}


def caches() -> list[str]:
    """Folders whose content any program may replace at any time; they exist then."""
    home = os.path.expanduser("~")
    named = [os.environ.get(name, "") for name in _CACHES]
    inductor = os.path.join(tempfile.gettempdir(), f"torchinductor_{os.environ.get('USER', 'root')}")
    for folder in (f"{home}/.cache", inductor, *filter(None, named)):
        with contextlib.suppress(OSError):
            os.makedirs(folder, exist_ok=True)
    return [f"{home}/.cache", f"{home}/.triton", f"{home}/.nv", inductor, *filter(None, named)]


_CACHES = (
    "XDG_CACHE_HOME",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_DATASETS_CACHE",
    "TORCH_HOME",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "CUDA_CACHE_PATH",
)
