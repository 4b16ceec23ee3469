"""The GIL while we begin and tell: who runs Python keeps it for a switch interval each time that we give it up."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_SHORT_US = 97  # each import, each read of a file gives the GIL up: thousands of times. A number that nobody else sets

_shortened = threading.Lock()  # held by who shortened it: others, and who is nested, find it short
_before_us = 0


@contextmanager
def short_switch_interval() -> Iterator[None]:
    """Others' turns are short in here. What the program sets meanwhile stays. Raises nothing."""
    global _before_us
    lock = _shortened  # a forked child has another
    mine = lock.acquire(blocking=False)
    try:
        if mine:
            _before_us = _get_us()
            if _before_us > _SHORT_US:
                _set_us(_SHORT_US)
        yield
    finally:
        if mine:
            _restore()
            lock.release()


def _restore() -> None:
    if _get_us() == _SHORT_US:
        _set_us(_before_us)


def _get_us() -> int:
    return round(sys.getswitchinterval() * 1e6)


def _set_us(us: int) -> None:
    sys.setswitchinterval((us + 0.5) / 1e6)  # CPython cuts off what is below a microsecond


def after_fork_in_child() -> None:
    """What another thread of the parent had begun is undone."""
    global _shortened
    if _shortened.locked():
        _restore()
    _shortened = threading.Lock()
