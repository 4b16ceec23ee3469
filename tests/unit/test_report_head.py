"""The head of the HTML report: what costs most, what to do, and the notes."""

from __future__ import annotations

import re
from pathlib import Path

from runfiles import RunFile
from trainperf.report.html import render
from trainperf.report.model import LOOKS_LESS, build


def test_the_place_of_the_cost_is_not_that_of_the_fix(tmp_path: Path) -> None:
    """A DataLoader's options do not stand in the data set, where the time goes."""
    file = RunFile(tmp_path / "a.tpr").steps(100, data_wait=8, compute=4)
    at = file.stack("/u/train.py:8 Data.__getitem__", "/u/train.py:20 <module>")
    file.detail("sample", 400, phase="fetch", state="python", stack=at)
    file.loader(1, fetches=100, wait=800, cpu=780, num_workers=0)
    with file.open() as run:
        page, where = render(run), build(run).findings[0].where
    head = page.partition("<main>")[0]
    assert where.endswith("train.py:8") and "train.py:8" in head
    assert re.search(r"<b>Do this</b></p>\s*<pre><code>", head)


def test_what_needs_nothing_done_does_not_look_like_a_warning(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "a.tpr").steps(100, compute=4).note("a hook is off").note(f"{LOOKS_LESS}: fine")
    with file.open() as run:
        page = render(run)
    assert '<p class="note"><b>Note</b> a hook' in page and f'<p class="note calm"><b>Note</b> {LOOKS_LESS}' in page
