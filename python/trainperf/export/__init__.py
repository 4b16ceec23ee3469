"""Writes a run for other programs: one module per format, found by the file's name.

    from trainperf.export import choose
    choose("t.json.gz").write(run, "t.json.gz")

A module of a format has `write(run: Run, path: str) -> None`, which makes or replaces what `path` names.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trainperf.errors import TrainperfError

if TYPE_CHECKING:
    from trainperf.run import Run


@dataclass(frozen=True, slots=True)
class Format:
    name: str
    suffixes: tuple[str, ...]  # the longest that fits a file's name decides
    module: str  # imported when it is first used: a format may need packages that others do not
    what: str

    def write(self, run: Run, path: str) -> None:
        """Raises TrainperfError when a package that the format needs is missing, OSError when `path` cannot be made."""
        importlib.import_module(self.module).write(run, path)


FORMATS: Final[tuple[Format, ...]] = (
    Format(
        "chrome",
        (".json.gz", ".trace.json", ".trace.json.gz"),
        "trainperf.export.chrome",
        "timeline for ui.perfetto.dev and chrome://tracing",
    ),
)


def choose(path: str, name: str | None = None) -> Format:
    """The format called `name`, else the one whose suffix `path` has."""
    if name is not None:
        for known in FORMATS:
            if known.name == name:
                return known
        raise TrainperfError(f"{name!r} is no format: use {', '.join(f.name for f in FORMATS)}")
    lower = os.path.basename(path).lower()
    fitting = [(len(s), f) for f in FORMATS for s in f.suffixes if lower.endswith(s)]
    if not fitting:
        suffixes = ", ".join(f"{f.suffixes[0]} ({f.what})" for f in FORMATS)
        raise TrainperfError(f"the name {path} does not tell a format: end it in one of {suffixes}, or use --format")
    return max(fitting, key=lambda pair: pair[0])[1]
