"""What a person should know about a run: `find(run)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings.model import Abstained, Finding

if TYPE_CHECKING:
    from trainperf.findings.engine import Findings
    from trainperf.runfile import RunReader

__all__ = ["Abstained", "Finding", "find"]


def find(run: RunReader) -> Findings:
    """The findings of a run, costliest first, its verdict, and the rules that abstained."""
    from trainperf.findings import engine

    return engine.find(run)
