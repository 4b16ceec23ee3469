"""Hooks for modules that are imported after the watch has begun (`trainperf run` begins before the script does)."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import threading
import types
from collections.abc import Callable, Sequence

_AS_MADE = object()


class LateImports(importlib.abc.MetaPathFinder):
    """Calls back when one of some modules has been imported.

    A finder at the head of sys.meta_path is the least that does it: it is asked once per module that is first
    imported, knows all but a few names at once for none of its business, and leaves the finding and the loading to the
    others. (Wrapping __import__ would slow every import statement; looking at sys.modules needs an own thread that
    takes the GIL.) The module, its spec and its loader are as without us: exec_module is replaced on the loader object
    for that one call.
    """

    def __init__(self, modules: Sequence[str], imported: Callable[[str], None]) -> None:
        self._waiting = set(modules)
        self._imported = imported
        self._busy = threading.local()

    def install(self) -> None:
        if self._waiting:
            sys.meta_path.insert(0, self)

    def remove(self) -> None:
        self._waiting.clear()
        self._take_out()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._waiting or getattr(self._busy, "on", False):
            return None
        self._busy.on = True
        try:
            spec = self._ask_others(fullname, path, target)
        finally:
            self._busy.on = False
        if spec is not None and spec.loader is not None:
            self._call_after(spec.loader, fullname)
        return spec

    def _ask_others(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None
    ) -> importlib.machinery.ModuleSpec | None:
        for finder in tuple(sys.meta_path):
            find_spec = getattr(finder, "find_spec", None)
            if finder is not self and find_spec is not None:
                spec: importlib.machinery.ModuleSpec | None = find_spec(fullname, path, target)
                if spec is not None:
                    return spec
        return None

    def _call_after(self, loader: importlib.abc.Loader, fullname: str) -> None:
        original = getattr(loader, "exec_module", None)
        replaced = getattr(loader, "__dict__", {"exec_module": None}).get("exec_module", _AS_MADE)
        if original is None or not (replaced is _AS_MADE or getattr(replaced, "of_late_imports", False)):
            return  # a loader of the old kind, without attributes of its own, or someone else's trick: keep out

        def exec_module(module: types.ModuleType) -> None:
            vars(loader).pop("exec_module", None)
            original(module)
            if fullname in self._waiting:
                self._waiting.discard(fullname)
                if not self._waiting:
                    self._take_out()
                self._imported(fullname)

        exec_module.of_late_imports = True  # type: ignore[attr-defined]  # another of us may wait for this module, too
        vars(loader)["exec_module"] = exec_module

    def _take_out(self) -> None:
        for i, finder in enumerate(sys.meta_path):
            if finder is self:
                del sys.meta_path[i]
                return
