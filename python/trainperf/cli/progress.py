"""A line on the terminal while something takes longer than a second; nothing where stderr is no terminal.

with working("reading runs") as at:
    for i, path in enumerate(paths):
        at(f"{i} of {len(paths)}")
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator

AFTER_SECONDS = 1.0
_EVERY_SECONDS = 0.25
_ERASE = "\r\x1b[K"


@contextlib.contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """Gives what says how far it is. The line is gone before the block is left, so that results stand alone."""
    if not _is_terminal():
        yield lambda how_far: None
        return
    state = {"how_far": ""}
    done = threading.Event()
    thread = threading.Thread(target=_show, args=(what, state, done, time.monotonic()), daemon=True)
    thread.start()
    try:
        yield lambda how_far: state.update(how_far=how_far)
    finally:
        done.set()
        thread.join()


def _show(what: str, state: dict[str, str], done: threading.Event, start: float) -> None:
    shown = False
    wait = AFTER_SECONDS
    with contextlib.suppress(OSError, ValueError):  # a terminal that has gone is no reason to fail
        while not done.wait(wait):
            how_far = f", {state['how_far']}" if state["how_far"] else ""
            sys.stderr.write(f"{_ERASE}{what}{how_far} ... {time.monotonic() - start:.0f} s")
            sys.stderr.flush()
            shown, wait = True, _EVERY_SECONDS
        if shown:
            sys.stderr.write(_ERASE)
            sys.stderr.flush()


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty() and os.environ.get("TERM", "") != "dumb"
    except (AttributeError, ValueError):
        return False
