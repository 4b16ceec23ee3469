"""The GIL while we begin, end and tell: who runs Python keeps it for a switch interval each time that we give it up."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SHORT_S = 0.0001  # each import, each read of a file, each row of a run gives the GIL up: thousands of times


@contextmanager
def short_switch_interval() -> Iterator[None]:
    """Others' turns are short in here. What the program sets meanwhile stays."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, _SHORT_S))
    ours = sys.getswitchinterval()
    try:
        yield
    finally:
        if sys.getswitchinterval() == ours:
            sys.setswitchinterval(before)
