"""`with run.phase("transfer"):`, and the names of the phases without the compiled core."""

from __future__ import annotations

from collections.abc import Callable

PHASES = ("fetch", "transfer", "forward", "backward", "optimizer", "checkpoint", "validation", "logging", "other")


class PhaseBracket:
    """`with run.phase("transfer"):`. Holds nothing, so one serves all threads, nested and again."""

    __slots__ = ("_begin", "_end", "_number")

    def __init__(self, begin: Callable[[int], None], end: Callable[[int], None], number: int) -> None:
        self._begin = begin
        self._end = end
        self._number = number

    def __enter__(self) -> None:
        self._begin(self._number)

    def __exit__(self, *_: object) -> None:
        self._end(self._number)


def _nothing(*_: object) -> None:
    pass


NO_BRACKET = PhaseBracket(_nothing, _nothing, 0)
