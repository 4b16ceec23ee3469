"""Files that are written whole or not at all, and what a run is called among others."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from trainperf.errors import TrainperfError
from trainperf.output import cannot_write, umask

if TYPE_CHECKING:
    from trainperf.run import Run

_RANK = re.compile(r"\.rank\d+$")


@contextlib.contextmanager
def replaced(path: str) -> Iterator[str]:
    """The path of a file to write in place of `path`: it takes its place when all went well, and goes when not."""
    try:
        descriptor, made = tempfile.mkstemp(prefix=".trainperf-", dir=os.path.dirname(path) or ".")
    except OSError as error:
        raise cannot_write(path, error) from error
    os.close(descriptor)
    try:
        yield made
        os.chmod(made, 0o666 & ~umask())
        os.replace(made, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(made)
        raise


def run_name(run: Run) -> str:
    """What the ranks of one run share, and other runs in its folder do not have: a.rank3.tpr is of run "a"."""
    return _RANK.sub("", Path(run.path).stem) or "run"


def rank(run: Run) -> int:
    text = run.meta.get("rank", "0")
    return int(text) if text.isdigit() else 0


def needs(package: str, extra: str = "") -> TrainperfError:
    how = f"pip install 'trainperf[{extra}]'" if extra else f"pip install {package}"
    return TrainperfError(f"this format needs {package}, which is not installed: {how}")
