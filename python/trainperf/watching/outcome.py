"""What a watch has seen, by its run: while it runs and afterwards."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from trainperf.errors import TrainperfError
from trainperf.log import log
from trainperf.watching.switch_interval import short_switch_interval

if TYPE_CHECKING:
    import pandas as pd

    from trainperf.findings.model import Finding
    from trainperf.opened import OpenedRun


class Outcome:
    """A part of Watch."""

    _path: str  # absolute
    _given: str  # as it was asked for
    _private: bool
    _why_off: str
    _session: Any
    _run: OpenedRun | None
    _state: str
    _pid: int
    _trouble: str

    @property
    def running(self) -> bool:
        return self._state == "running" and self._pid == os.getpid()

    @property
    def path(self) -> str:
        """The run file, as a str like Run.path; "" when nothing is watched. As it was given, while that leads there."""
        return self._given if self._given and absolute(self._given) == self._path else self._path

    @property
    def run(self) -> OpenedRun:
        """The run file, open: as it is now, and after the end as it stays."""
        if self._run is not None:
            return self._run
        if not self._path:
            raise TrainperfError(f"there is no run: {self._why_off or 'the watch has not begun'}")
        from trainperf.meta import describe_cells
        from trainperf.opened import OpenedRun

        if self.running:
            describe_cells(self._session)
            try:
                self._session.flush()
            except OSError as error:
                log.warning("the run is shown as it was last written: %s", error)
            now = OpenedRun(self.path)
            now.still_runs = True
            return now
        self._run = OpenedRun(self.path)
        return self._run

    @property
    @short_switch_interval()
    def findings(self) -> list[Finding]:
        """What was found, costliest first."""
        if self._why_off:
            return []
        return self.run.findings

    @short_switch_interval()
    def summary(self) -> str:
        """The verdict, as text of at most 15 lines."""
        if self._why_off:
            return f"trainperf: nothing was watched: {self._why_off}"
        return self.run.summary(keep=not self._private, notes=self._notes())

    def to_pandas(self) -> pd.DataFrame:
        """The steps, as Run.to_pandas() gives them."""
        return self.run.to_pandas()

    @short_switch_interval()
    def report(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> str:
        """Writes the report as it is now, as Run.report() does; a watch that watched nothing has none."""
        from trainperf.report.html import render, write

        return write(render(self.run, notes=self._notes()), path, overwrite=overwrite, inputs=[self.path])

    @short_switch_interval()
    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """What a notebook shows: the verdict as text, and the report."""
        if not self._path:
            return {"text/plain": self.summary() if self._why_off else repr(self)}
        from trainperf.notebook.page import mimebundle

        return mimebundle(self.run, self.summary(), self._notes())

    def _notes(self) -> list[str]:
        """What the run file itself cannot say."""
        running = ["the watch still runs: this is what it has seen so far"] if self.running else []
        return [*running, self._trouble] if self._trouble else running


def absolute(path: str) -> str:
    """As it is where the folder that the process is in is gone, or has a name that a run file's cannot have."""
    try:
        found = os.path.abspath(path) if path else ""
        found.encode()
        return found
    except (OSError, UnicodeEncodeError):
        return path
