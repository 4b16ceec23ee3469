"""A watch in a notebook: which cell began it, what becomes of it when that cell fails or runs again, cells' names.

The time between two cells is in no step: the loop ends with its cell, and may begin again in the next.

Imported only where IPython is loaded. Nothing here raises into the user's code.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from trainperf.log import log

_MOST_CELLS: Final = 400  # in the run file: the latest

# Ends a watch that was left open: why, and by which exception.
Close = Callable[[str, type[BaseException] | None], None]


class Watched(Protocol):
    """What a Watch is to its cell."""

    @property
    def running(self) -> bool: ...
    def loop_begins(self) -> None: ...
    def loop_ends(self) -> None: ...


class _Begun(NamedTuple):
    watch: Watched
    close: Close
    execution: int  # that began it
    cell: str


_begun: dict[int, _Begun] = {}  # by the id of the watch
_hooked: list[Any] = []  # shells that tell us when a cell ends


def shell() -> Any:
    """The running IPython shell, or None."""
    ipython = sys.modules.get("IPython")
    try:
        return ipython.get_ipython() if ipython is not None else None
    except Exception as error:
        log.debug("no IPython shell: %s", error)
        return None


def begins(watch: Watched, close: Close) -> None:
    """Called when a watch has begun."""
    here = shell()
    if here is None:
        return
    _begun[id(watch)] = _Begun(watch, close, execution(here), _source(here))
    if here not in _hooked:
        for event, callback in _CALLBACKS.items():
            here.events.register(event, callback)
        _hooked.append(here)


def left_open(running: Watched) -> bool:
    """Whether the cell that began this watch is being run again: then it is closed here, with a note."""
    here, begun = shell(), _begun.get(id(running))
    if here is None or begun is None or not begun.cell:
        return False
    if begun.execution == execution(here) or begun.cell != _source(here):
        return False
    _close(begun, f"cell In [{begun.execution}] left this watch open, and was run again")
    return True


def _before_cell(info: Any) -> None:
    for begun in _begun.values():
        begun.watch.loop_begins()


def _after_cell(result: Any) -> None:
    """A cell that began a watch, and fails or is interrupted before it ends it, will not end it any more."""
    here = shell()
    for begun in list(_begun.values()):
        if not begun.watch.running:
            _begun.pop(id(begun.watch), None)
        elif not result.success and here is not None and begun.execution == execution(here):
            error = result.error_in_exec or result.error_before_exec
            why = f"cell In [{begun.execution}] ended by {type(error).__name__} and left this watch open"
            _close(begun, why, type(error))
        else:
            begun.watch.loop_ends()
    if not _begun:
        _unhook()


_CALLBACKS: Final[dict[str, Callable[[Any], None]]] = {"pre_run_cell": _before_cell, "post_run_cell": _after_cell}


def _unhook() -> None:
    while _hooked:
        events = _hooked.pop().events
        for event, callback in _CALLBACKS.items():
            try:
                events.unregister(event, callback)
            except ValueError:
                log.debug("our hook has been removed from IPython")


def close_all_left_open(why: str) -> None:
    """Ends the watches that earlier cells began and did not end."""
    here = shell()
    for begun in list(_begun.values()):
        if begun.watch.running and here is not None and begun.execution != execution(here):
            _close(begun, f"cell In [{begun.execution}] left this watch open: {why}")


def shows_next(watch: object) -> bool:
    """Whether the cell is `with ... as run:` with this watch, and then the last line `run`, which shows the report."""
    here = shell()
    if here is None:
        return False
    try:
        body = ast.parse(_source(here)).body
        block, line = body[-2], body[-1]
        if here.ast_node_interactivity == "none" or here.displayhook.quiet():
            return False
    except Exception as error:  # no Python, too short, or another shell than IPython's
        log.debug("what the cell shows at its end is not known: %s", error)
        return False
    if not (isinstance(block, ast.With) and isinstance(line, ast.Expr) and isinstance(line.value, ast.Name)):
        return False
    names = [item.optional_vars.id for item in block.items if isinstance(item.optional_vars, ast.Name)]
    return line.value.id in names and here.user_ns.get(line.value.id) is watch


def _close(begun: _Begun, why: str, kind: type[BaseException] | None = None) -> None:
    _begun.pop(id(begun.watch), None)
    begun.close(why, kind)


def execution(here: Any) -> int:
    """The number of the cell that runs. Not shell.execution_count, which some versions have raised by now."""
    return len(_inputs(here)) - 1


def _inputs(here: Any) -> list[Any]:
    cells = getattr(here, "user_ns", {}).get("In")
    return cells if isinstance(cells, list) else []


def _source(here: Any) -> str:
    """What stands in the cell that runs: it stays the same when it is run again."""
    cells = _inputs(here)
    return str(cells[-1]) if cells else ""


def names() -> str:
    """The cells' files as JSON, {"/tmp/ipykernel_7/123.py": 5}: a place in one is told as In [5]; "" without any."""
    here = shell()
    files = getattr(getattr(here, "compile", None), "_filename_map", None)
    if not isinstance(files, dict) or not files:
        return ""
    latest = sorted(((n, file) for file, n in files.items() if isinstance(n, int)), reverse=True)[:_MOST_CELLS]
    return json.dumps({file: n for n, file in latest})
