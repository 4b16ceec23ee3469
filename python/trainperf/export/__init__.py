"""Writes a run for other programs: one module per format, found by the file's name.

    from trainperf.export import choose
    choose("steps.parquet").write(run, "steps.parquet")

A module of a format has `write(run: Run, path: str) -> None`, which makes or replaces what `path` names.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from trainperf.errors import TrainperfError

if TYPE_CHECKING:
    from trainperf.run import Run


@dataclass(frozen=True, slots=True)
class Format:
    name: str
    suffixes: tuple[str, ...]  # the longest that fits a file's name decides
    module: str  # imported when it is first used: a format may need packages that others do not
    what: str
    into: Literal["file", "folder", "service"] = "file"  # what `path` names; a folder takes many runs
    function: str = "write"
    one_file: bool = True  # a run becomes one file, in a folder too
    option: str = ""  # what -o is, of a format that no name tells

    def write(self, run: Run, path: str) -> None:
        """Raises TrainperfError when a package that the format needs is missing, OSError when `path` cannot be made."""
        getattr(importlib.import_module(self.module), self.function)(run, path)

    def place(self, run: Run, path: str) -> str:
        """The file or folder that is made for this run; "" when that is another program's affair."""
        if self.into == "service":
            return ""
        return str(importlib.import_module(self.module).place(run, path)) if self.into == "folder" else path


FORMATS: Final[tuple[Format, ...]] = (
    Format(
        "chrome",
        (".json.gz", ".trace.json", ".trace.json.gz"),
        "trainperf.export.chrome",
        "timeline for ui.perfetto.dev and chrome://tracing",
    ),
    Format("json", (".json",), "trainperf.export.document", "all that `show --json --steps` says"),
    Format("csv", (".csv",), "trainperf.export.csv", "a row per step"),
    Format("parquet", (".parquet",), "trainperf.export.parquet", "a row per step"),
    Format(
        "dataset",
        ("/",),
        "trainperf.export.parquet",
        "a folder of Parquet files by run and rank, of many runs",
        into="folder",
        function="write_partition",
    ),
    Format(
        "tensorboard",
        (),
        "trainperf.export.tensorboard",
        "scalars in a log folder",
        into="folder",
        one_file=False,
        option="-o is the log folder",
    ),
    Format(
        "mlflow",
        (),
        "trainperf.export.mlflow",
        "metrics",
        into="service",
        option="-o is the tracking URI",
    ),
    Format("wandb", (), "trainperf.export.wandb", "history", into="service", option="-o is the project"),
)


def choose(path: str, name: str | None = None) -> Format:
    """The format called `name`, else the one whose suffix `path` has; a folder is a data set."""
    if name is not None:
        for known in FORMATS:
            if known.name == name:
                return known
        raise TrainperfError(f"{name!r} is not a format: use {', '.join(f.name for f in FORMATS)}")
    lower = "/" if path.endswith(os.sep) or os.path.isdir(path) else os.path.basename(path).lower()
    fitting = [(len(s), f) for f in FORMATS for s in f.suffixes if lower.endswith(s)]
    if not fitting:
        ends = {f.name: " or ".join(f.suffixes[:2]).replace("/", "a folder: /") for f in FORMATS if f.suffixes}
        by_name = ", ".join(f"{known} ({end})" for known, end in ends.items())
        by_option = ", ".join(f"--format {f.name} ({f.option})" for f in FORMATS if not f.suffixes)
        raise TrainperfError(
            f"the name {path} fits no format: end it as one of these, {by_name}; or name the format, {by_option}"
        )
    return max(fitting, key=lambda pair: pair[0])[1]
