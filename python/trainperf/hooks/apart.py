"""How long a thread was in phases of their own: a checkpoint, logging, validation."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainperf.hooks.patch import AnyFunction, Switch

_now = time.perf_counter_ns
_Taken = tuple[int, int, int, dict[int, int], int]


class Apart:
    """For who measures what lies around them, on one thread: what they took is not part of that.

    On other threads, and where nobody measures, begin() and end() do nothing. An end() without a begin() is none.
    """

    __slots__ = ("_evaluate", "_since_ns", "depth", "measured", "ns", "thread")

    def __init__(self) -> None:
        self.thread = 0  # of who measures; 0: nobody does
        self.measured = 0  # stretches that it is in the middle of measuring
        self.depth = 0  # of those that have begun and not ended
        self.ns = 0  # of those that have ended; of nested ones the outermost counts
        self._since_ns = 0
        self._evaluate: dict[int, int] = {}  # modules that a callback has switched: how deep it was then

    def begin(self) -> None:
        if threading.get_ident() == self.thread:
            if not self.depth:
                self._since_ns = _now()
            self.depth += 1

    def end(self) -> None:
        if self.depth and threading.get_ident() == self.thread:
            self.depth -= 1
            if not self.depth:
                self.ns += _now() - self._since_ns

    def validates(self, module: object) -> None:
        """It is switched to evaluate: in the middle of what is measured, by a callback that validates by itself."""
        if self.measured and threading.get_ident() == self.thread:
            self._evaluate[id(module)] = self.depth
            self.begin()

    def validated(self, module: object) -> None:
        if threading.get_ident() == self.thread and self._evaluate.pop(id(module), None) is not None:
            self.end()

    def leave(self, depth: int) -> None:
        """Ends those that have begun since it was `depth`."""
        self._evaluate = {module: at for module, at in self._evaluate.items() if at < depth}
        if self.depth > depth:
            self.depth = depth
            if not depth:
                self.ns += _now() - self._since_ns

    def bracketed(
        self, original: AnyFunction, switch: Switch, begin: Callable[[int], Any], end: Callable[[int], Any], mark: int
    ) -> AnyFunction:
        """`original` as such a stretch: from begin(mark) to end(mark)."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if not switch.on:
                return original(*args, **kwargs)
            try:
                self.begin()  # in here, as a Ctrl-C between the two would leave it begun for good
                begin(mark)
                return original(*args, **kwargs)
            finally:
                end(mark)
                self.end()

        return call

    # Who measures: a training within another one's callback does so too.

    def take(self) -> _Taken:
        """For this thread; give_back() takes what this returns."""
        taken = self.thread, self.depth, self.measured, self._evaluate, self._since_ns
        self.thread, self.depth, self.measured, self._evaluate = threading.get_ident(), 0, 0, {}
        return taken

    def give_back(self, taken: _Taken) -> None:
        self.thread, self.depth, self.measured, self._evaluate, self._since_ns = taken
