"""Names of the processes that this one has started, as multiprocessing calls them: "ForkPoolWorker-1"."""

from __future__ import annotations

import sys
from typing import Any, Final

from trainperf.hooks.context import Context

# multiprocess is a copy of it that pickles more (Hugging Face's datasets), billiard is Celery's.
_MODULES: Final = ("multiprocessing.process", "multiprocess.process", "billiard.process")


class ChildNamesHook:
    """Asked as a chore, on a step's thread."""

    name = "children"
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
        unnamed = session.unnamed_children()
        if not unnamed:
            return
        named = {pid: name for module in _MODULES for pid, name in _started(sys.modules.get(module))}
        for pid in unnamed:
            if pid in named:
                session.name_child(pid, named[pid])

    def remove(self) -> None:
        self._context = None


def _started(module: Any) -> list[tuple[int, str]]:
    """active_children() would also wait for those that have ended, which is the user's to do."""
    found = []
    for process in tuple(getattr(module, "_children", ())):
        pid = getattr(getattr(process, "_popen", None), "pid", None)  # None: its start() has not come back
        if isinstance(pid, int):
            found.append((pid, str(process.name)))
    return found
