"""The one watch of this process: who it is, how the next one begins, and that a forked child has none."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Protocol

from trainperf.errors import AlreadyWatchingError
from trainperf.watching import switch_interval

if TYPE_CHECKING:
    from trainperf.settings import Settings
    from trainperf.watching.phases import PhaseBracket


class Watched(Protocol):
    """What a Watch is to its process."""

    gives_way: bool
    gave_way: bool
    _pid: int
    _settings: Settings

    @property
    def path(self) -> str: ...
    @property
    def running(self) -> bool: ...
    def step(self) -> None: ...
    def phase(self, name: str) -> PhaseBracket: ...
    def stop(self) -> None: ...
    def loop_begins(self) -> None: ...
    def loop_ends(self) -> None: ...
    def leave_no_run(self, why: str) -> None: ...
    def _begin(self) -> None: ...
    def _abandon(self) -> None: ...
    def _disable(self, why: str) -> None: ...
    def _forget(self) -> None: ...
    def _left_open(self, why: str, kind: type[BaseException] | None) -> None: ...


lock = threading.RLock()  # held while a watch begins, and while one ends
latest: Watched | None = None  # the one that runs; where a fork was not told to us, the parent's: see current()

_left_to_parent: list[Watched] = []  # kept alive in forked children, since ending them is not theirs
_fork_hook_set = False


def current() -> Watched | None:
    running = latest
    return running if running is not None and running._pid == os.getpid() else None


def begin(new: Watched) -> None:
    """Raises AlreadyWatchingError, and what beginning raises; then `new` can be tried again."""
    global latest, _fork_hook_set
    with lock:
        if _imports_main():
            new._disable("this process imports the main module for one that multiprocessing spawned")
        running = current()
        if running is not None and running.gives_way:
            running.leave_no_run("the program watches itself")
            running.gave_way = True
            running = None
        if running is not None and "IPython" in sys.modules:
            from trainperf.notebook import cells

            if cells.left_open(running):
                running = None
        disabled = new._settings.disabled
        if running is not None and not disabled:
            what = f" (into {running.path})" if running.path else ""
            raise AlreadyWatchingError(
                f"this process is already being watched{what}: leave that watch, or call trainperf.stop(), first"
            )
        if not _fork_hook_set and hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_after_fork_in_child)
            _fork_hook_set = True
        new._begin()
        try:
            if not disabled:
                latest = new
                if "IPython" in sys.modules:
                    from trainperf.notebook import cells

                    cells.begins(new, new._left_open)
        except BaseException:  # Ctrl-C just here
            latest = None
            new._abandon()
            raise


def _imports_main() -> bool:
    """A spawned process, such as a DataLoader worker, runs what stands outside of `if __name__ == "__main__":` again.

    The sign is that by which multiprocessing itself refuses to start processes there.
    """
    module = sys.modules.get("multiprocessing.process")
    return module is not None and getattr(module.current_process(), "_inheriting", False)


def ends(old: object) -> None:
    """Called with the lock held."""
    global latest
    if latest is old:
        latest = None


def _after_fork_in_child() -> None:
    global latest, lock
    lock = threading.RLock()  # another thread of the parent may have held it
    switch_interval.after_fork_in_child()
    left, latest = latest, None
    if left is not None:
        _left_to_parent.append(left)
        left._forget()
