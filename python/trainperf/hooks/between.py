"""Calls on_flag(step) for steps that were flagged: on the training thread, at the boundary between two steps.

The hooks that meet such a boundary ask at_*(); that costs 0.1 us while nothing waits. The callback's own time belongs
to the program, as phase `other`, and whatever it does leaves no marks, so that it cannot be taken for a step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainperf.log import log
from trainperf.watching.closed_steps import ClosedStep
from trainperf.watching.telling import warn

if TYPE_CHECKING:
    from trainperf.hooks.core import Native, Session

OnFlag = Callable[[ClosedStep], Any]

# After so many boundaries of a lesser kind without one of the better kind, the lesser one is the loop's.
_PATIENCE = 64
_PATIENT_TICKS = 20
_TICK_S = 0.1


class Between:
    """The training thread's, but for the constructor; other threads may pass by, and find nothing waiting for them."""

    def __init__(self, native: Native, session: Session, on_flag: OnFlag) -> None:
        self._native = native
        self._session = session
        self._on_flag = on_flag
        self._waiting = native.flags_waiting
        self._other = native.PHASES.index("other")
        self._busy = False
        self._failed = False
        self._after_loader_start = False
        self._fetching_thread = 0
        self._optimizer_steps = 0  # since a fetch
        self._seen = False  # any boundary but a backward's
        self._ticks = 0

    def at_step(self) -> None:
        """run.step() is about to cut."""
        self._seen = True
        if self._waiting():
            self._deliver()

    def at_loader_start(self) -> None:
        self._after_loader_start = False
        self.at_fetch()
        self._after_loader_start = True

    def at_fetch(self) -> None:
        """A fetch is about to begin."""
        if self._after_loader_start:  # the two belong together: nothing may come between them
            self._after_loader_start = False
            return
        self._seen = True
        self._optimizer_steps = 0
        self._fetching_thread = threading.get_ident()
        if self._waiting():
            self._deliver()

    def at_optimizer_end(self) -> None:
        """In loops without a DataLoader, or that train on one batch again and again."""
        self._seen = True
        self._optimizer_steps += 1
        if self._waiting() and (self._optimizer_steps > _PATIENCE or self._fetching_thread != threading.get_ident()):
            self._deliver()

    def at_tick(self) -> float:
        """At the end of a backward, as a chore: for loops that know nothing but backward."""
        self._ticks += 1
        if not self._seen and self._ticks > _PATIENT_TICKS and self._waiting():
            self._deliver()
        return _TICK_S  # however long the callback took: its time is the program's

    def finish(self) -> None:
        """The watch has ended on the training thread: the last ones."""
        if not self._busy:
            self._call()

    def _deliver(self) -> None:
        if self._busy:
            return
        native = self._native
        try:
            self._busy = True
            native.begin_phase(self._other)
            native.mute(1)
            self._call()
        finally:
            self._busy = False
            native.mute(0)
            native.end_phase(self._other)

    def _call(self) -> None:
        causes = self._native.CAUSES
        for raw in self._session.take_flagged():
            try:
                self._on_flag(ClosedStep.of(raw, causes))
            except Exception as error:
                self._tell(error)

    def _tell(self, error: Exception) -> None:
        if self._failed:
            return
        self._failed = True
        text = f"on_flag raised {type(error).__name__}: {error}; training goes on, and it is called again"
        log.error("%s", text, exc_info=error)
        self._session.note(text)
        warn(f"{text}{_where(error)}")


def _where(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f" ({trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})"
