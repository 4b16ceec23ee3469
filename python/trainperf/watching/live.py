"""What a watch can tell of the steps that have closed so far, while it runs and afterwards."""

from __future__ import annotations

import os
from typing import Any

from trainperf.watching.closed_steps import FLAGS, ClosedStep, Flags, StepTotals


class LiveSteps:
    """A part of Watch. Steps close 0.2 to 0.4 s late, the first of a run later: docs/flags.md."""

    _pid: int
    _closed: Any = None  # the session, also after its end; None: nothing is watched
    _causes: tuple[str, ...] = ()

    @property
    def flags(self) -> Flags:
        """How many steps were flagged data_starved, gil_contended and host_stalled, and the last of them."""
        totals = self.step_totals
        steps = self._closed.recent_flagged() if self._readable() else ()
        return Flags(totals.steps, totals.flags, tuple(ClosedStep.of(raw, self._causes) for raw in steps))

    @property
    def step_totals(self) -> StepTotals:
        """Sums over all steps that have closed; for figures of an interval, `run.step_totals.since(earlier)`."""
        if not self._readable():
            return StepTotals(0, 0, {}, dict.fromkeys(FLAGS, 0))
        steps, wall_ns, causes_ns, flagged = self._closed.step_totals()
        causes = dict(zip(self._causes, causes_ns, strict=True))
        return StepTotals(steps, wall_ns, causes, dict(zip(FLAGS, flagged, strict=True)))

    def recent_steps(self, after: int = -1) -> tuple[ClosedStep, ...]:
        """The last steps that closed, at most 1024, oldest first; only those with a higher index than `after`."""
        steps = self._closed.recent_steps(after) if self._readable() else ()
        return tuple(ClosedStep.of(raw, self._causes) for raw in steps)

    def _readable(self) -> bool:
        return self._closed is not None and self._pid == os.getpid()
