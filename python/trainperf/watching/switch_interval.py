"""The GIL while we tell: who runs Python keeps it for a whole switch interval, each time that we gave it up."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SHORT_S = 0.0001  # each read of a file and each row of a run gives the GIL up: thousands of times in a verdict


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
