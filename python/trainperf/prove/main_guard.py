"""Whether a line of a script runs again in each worker that is not forked: those import the script anew."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def why_no_workers(settings: Mapping[str, Any], loader: Mapping[str, Any]) -> str:
    """Why workers cannot be started so by this script; "" where they can.

    The trial's own workers would import a script whose loader has none, and so hide the error that an edit brings.
    """
    method = settings.get("multiprocessing_context") or default_method()
    if method == "fork" or not settings.get("num_workers", loader["options"].get("num_workers")):
        return ""
    file, line = loader["chain"][-1] if loader["chain"] else ("", 0)
    if not file or is_guarded(file, line):
        return ""
    return f'workers by {method} import the script anew: put its loop below `if __name__ == "__main__":`'


def default_method() -> str:
    """How this interpreter starts processes where nobody says."""
    return "fork" if sys.version_info < (3, 14) else "forkserver"


def is_guarded(file: str, line: int) -> bool:
    """Whether `line` is below `if __name__ == "__main__":`, or cannot be judged."""
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return True
    return any(_is_guard(node) and _holds(node.body, line) for node in tree.body if isinstance(node, ast.If))


def _is_guard(node: ast.If) -> bool:
    names = {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)}
    texts = {n.value for n in ast.walk(node.test) if isinstance(n, ast.Constant)}
    return "__name__" in names and "__main__" in texts


def _holds(body: Sequence[ast.stmt], line: int) -> bool:
    return any(node.lineno <= line <= (node.end_lineno or node.lineno) for node in body)
