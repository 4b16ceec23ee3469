"""How long a thread was in phases of their own: a checkpoint, logging, validation."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainperf._native import ApartState, logging_function

if TYPE_CHECKING:
    from trainperf._native import BracketFunction
    from trainperf.hooks.core import Native
    from trainperf.hooks.patch import AnyFunction, Switch

_Taken = tuple[int, int, int, dict[int, int], int, int]


class Apart(ApartState):
    """For who measures what lies around them, on one thread: what they took is not part of that.

    On other threads, and where nobody measures, begin() and end() do nothing. An end() without a begin() is none.
    """

    __slots__ = ()

    def validates(self, module: object) -> None:
        """It is switched to evaluate: in the middle of what is measured, by a callback that validates by itself."""
        if self.measured and threading.get_ident() == self.thread:
            self.evaluate[id(module)] = self.depth
            self.begin()

    def validated(self, module: object) -> None:
        if threading.get_ident() == self.thread and self.evaluate.pop(id(module), None) is not None:
            self.end()

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
                try:
                    end(mark)
                finally:
                    self.end()

        return call

    def logged(self, original: AnyFunction, switch: Switch, native: Native) -> BracketFunction:
        """`original`, which writes logs, as such a stretch: in C, as a step may have hundreds of them."""
        function = logging_function(original, self, native.begin, native.end)
        switch.turns_off(function)
        return function

    # Who measures: a training within another one's callback does so too.

    def take(self) -> _Taken:
        """For this thread; give_back() takes what this returns."""
        taken = self.thread, self.depth, self.measured, self.evaluate, self.since_ns, self.fetched_since_ns
        self.thread, self.depth, self.measured, self.evaluate = threading.get_ident(), 0, 0, {}
        return taken

    def give_back(self, taken: _Taken) -> None:
        self.thread, self.depth, self.measured, self.evaluate, self.since_ns, self.fetched_since_ns = taken
