"""How long a thread was in phases of their own: a checkpoint, logging, validation."""

from __future__ import annotations

import threading
import time

_now = time.perf_counter_ns


class Apart:
    """For who measures what lies around them, on one thread: what they took is not part of that.

    On other threads, and where nobody measures, begin() and end() do nothing. An end() without a begin() is none.
    """

    __slots__ = ("_depth", "_ns", "_since_ns", "thread")

    def __init__(self) -> None:
        self.thread = 0  # of who measures; 0: nobody does
        self._ns = self._since_ns = self._depth = 0

    def begin(self) -> None:
        if threading.get_ident() == self.thread:
            if not self._depth:
                self._since_ns = _now()
            self._depth += 1

    def end(self) -> None:
        if self._depth and threading.get_ident() == self.thread:
            self._depth -= 1
            if not self._depth:
                self._ns += _now() - self._since_ns

    def ns(self) -> int:
        """Up to now; of nested ones the outermost counts."""
        return self._ns + (_now() - self._since_ns if self._depth else 0)
