"""Names of the processes that this one has started, as multiprocessing calls them: "ForkPoolWorker-1"."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from trainperf.hooks.naming import NamingHook

if TYPE_CHECKING:
    from trainperf.hooks.core import Session

# multiprocess is a copy of it that pickles more (Hugging Face's datasets), billiard is Celery's.
_MODULES: Final = ("multiprocessing.process", "multiprocess.process", "billiard.process")


class ChildNamesHook(NamingHook):
    name = "children"

    def unnamed(self, session: Session) -> Sequence[int]:
        return session.unnamed_children()

    def names(self, unnamed: Sequence[int]) -> Mapping[int, str]:
        return {pid: name for module in _MODULES for pid, name in _started(sys.modules.get(module))}

    def tell(self, session: Session, number: int, name: str) -> None:
        session.name_child(number, name)


def _started(module: Any) -> list[tuple[int, str]]:
    """active_children() would also wait for those that have ended, which is the user's to do."""
    found = []
    for process in tuple(getattr(module, "_children", ())):
        pid = getattr(getattr(process, "_popen", None), "pid", None)  # None: its start() has not come back
        if isinstance(pid, int):
            found.append((pid, str(process.name)))
    return found
