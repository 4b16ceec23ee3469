"""The report as a cell's output."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from trainperf.log import log

if TYPE_CHECKING:
    from trainperf.run import Run


_HEIGHT: Final = 680


def mimebundle(run: Run, plain: str, notes: Sequence[str] = ()) -> dict[str, str]:
    """The verdict as text, and the report as a frame within the page. Never raises: text is better than nothing."""
    bundle = {"text/plain": plain}
    try:
        from trainperf.report.html import render
        from trainperf.report.model import build

        verdict = build(run, notes=notes).verdict.text
        bundle["text/html"] = frame(render(run, notes=notes, embedded=True), verdict, plain)
    except Exception as error:
        log.error("the report could not be shown: %s: %s", type(error).__name__, error, exc_info=True)
    return bundle


def frame(page: str, verdict: str, plain: str) -> str:
    """A frame that holds the whole page: a frame that loads a file fails in VS Code, and in a notebook sent elsewhere.

    It may run the page's own script (zoom and search), and gets at nothing of the notebook.

    Where frames are taken out (a notebook that is not trusted), the verdict below stays, and opens to the whole text.
    """
    style = f"width:100%;height:{_HEIGHT}px;border:1px solid #8886;border-radius:6px;resize:vertical;overflow:auto"
    from trainperf.report.svg.base import esc

    words = esc(verdict, 400)
    return (
        f'<iframe title="trainperf: {words}" sandbox="allow-scripts" srcdoc="{html.escape(page, quote=True)}" '
        f'style="{style}"></iframe>'
        f"<details><summary><small><b>trainperf</b>: {words}</small></summary>"
        f"<pre>{html.escape(plain, quote=True)}</pre></details>"
    )
