"""Files that are written whole or not at all, and what a run is called among others."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from trainperf.errors import TrainperfError
from trainperf.output import replacing

if TYPE_CHECKING:
    from trainperf.run import Run

_RANK = re.compile(r"\.rank\d+$")


@contextlib.contextmanager
def replaced(path: str) -> Iterator[str]:
    """The path of a file to write in place of `path`: it takes its place when all went well, and goes when not."""
    with replacing(path, overwrite=True) as made:
        yield made


def run_name(run: Run) -> str:
    """What the ranks of one run share, and other runs in its folder do not have: a.rank3.tpr is of run "a"."""
    return _RANK.sub("", Path(run.path).stem).strip(".") or "run"  # of "...tpr" no ".."


def rank(run: Run) -> int:
    text = run.meta.get("rank", "0")
    return int(text) if text.isdigit() else 0


def needs(package: str, extra: str = "") -> TrainperfError:
    how = f"pip install 'trainperf[{extra}]'" if extra else f"pip install {package}"
    return TrainperfError(f"this format needs {package}, which is not installed: {how}")
