"""A run, as users hold it: with its verdict, its report and its table.

with trainperf.open("a.tpr") as run:
    print(run.step_count, run.wall_ms_quantile(0.5), run.cause_ns("data_wait") / run.wall_ns)

Views take a Run and know nothing of this module: it is where users reach them from.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trainperf.run import Run

if TYPE_CHECKING:
    import pandas as pd


class OpenedRun(Run):
    """One run file, read-only; a context manager. trainperf.open() makes it.

    Raises RunFileError when the file cannot be read as a run, here or when something is first asked for.
    """

    # Views are imported as they are asked for: an import of trainperf stays light.

    def summary(self, *, keep: bool = True, notes: Sequence[str] = ()) -> str:
        """The verdict, as text of at most 15 lines.

        `keep`: say how to look at the file again. `notes`: to be shown before the run's own.
        """
        from trainperf.report.console import summary

        return summary(self, keep=keep, notes=notes)

    def report(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> str:
        """Writes the report, one HTML file that loads nothing, and gives its path.

        Raises FileExistsError when there is a file already, unless `overwrite`; OSError when it cannot be written.
        """
        from trainperf.report.html import render, write

        return write(render(self), path, overwrite=overwrite, inputs=[self.path])

    def to_pandas(self) -> pd.DataFrame:
        """The steps, a row each (in long runs: of `steps` neighbours, sums), indexed by step; times in nanoseconds.

        Columns as in `trainperf export` to Parquet or CSV, see docs/exports.md; `.attrs["trainperf"]` has `meta`.
        Raises TrainperfError when pandas is not installed.
        """
        from trainperf.export.frame import to_pandas

        return to_pandas(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """What a notebook shows: the verdict as text, and the report."""
        from trainperf.notebook.page import mimebundle

        return mimebundle(self, self.summary())
