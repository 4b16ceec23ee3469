"""A run: what its file says, and what the rules say of it. How it is shown is in opened.py."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from trainperf.runfile import RunReader

if TYPE_CHECKING:
    from trainperf.findings.engine import Findings
    from trainperf.findings.model import Finding


class Run(RunReader):
    """One run file, read-only; a context manager.

    Raises RunFileError when the file cannot be read as a run, here or when something is first asked for.
    """

    @cached_property
    def judged(self) -> Findings:
        """What the rules say: the verdict, the findings, and the checks that were skipped."""
        from trainperf.findings import find  # here, for a light import

        return find(self)

    @property
    def findings(self) -> list[Finding]:
        """What was found, costliest first."""
        return list(self.judged.findings)
