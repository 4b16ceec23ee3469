"""watch(): a running measurement of this process, as a context manager, a decorator, or a start and a stop."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from trainperf.log import log
from trainperf.watching import process
from trainperf.watching.lifetime import Lifetime
from trainperf.watching.phases import NO_BRACKET, PHASES, PhaseBracket

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from trainperf.watching.options import Options

F = TypeVar("F", bound=Callable[..., Any])


_clock = time.monotonic

_MAX_WRONG_PHASES = 64  # a name made in the loop, f"step {i}", would otherwise be remembered for each step


class Watch(Lifetime):
    """A watch and its run, made by trainperf.watch() or trainperf.start(). It can be entered once.

    Entered, it watches this process until it is left. Nothing that it does raises into the loop: what fails is
    logged (logger "trainperf"), noted in the run, and switched off.
    """

    # The loop's side.

    def step(self) -> None:
        """Ends a step. From the first call on only these calls end steps; without any, steps are detected."""
        native = self._native
        if native is not None:
            between = self._between  # another thread may stop the watch just now
            if between is not None:
                between.at_step()
            change_due = native.step()
            ticker = self._ticker
            if change_due or _clock() >= ticker.due:
                ticker.tick(change_due)

    def phase(self, name: str) -> PhaseBracket:
        """Marks a phase: `with run.phase("transfer"): ...`. An unknown name is logged once and marks nothing.

        Phases: fetch, transfer, forward, backward, optimizer, checkpoint, validation, logging, other.
        """
        bracket = self._brackets.get(name)
        return self._unknown_phase(name) if bracket is None else bracket

    def _unknown_phase(self, name: str) -> PhaseBracket:
        brackets, session = self._brackets, self._session
        if brackets and session is not None and len(brackets) < len(PHASES) + _MAX_WRONG_PHASES:
            text = f"phase({name!r}) is not a phase and was ignored: use {', '.join(PHASES)}"
            log.warning(text)
            session.note(text)
            self._brackets = {**brackets, name: NO_BRACKET}  # said once
        return NO_BRACKET

    # Life.

    def __enter__(self) -> Watch:
        self._is_used()
        process.begin(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Closing a generator that holds the watch open is no failure of the training in it.
        failed = kind is not None and not issubclass(kind, GeneratorExit)
        self._stop("exception" if failed else "normally", kind)

    def stop(self) -> None:
        """Ends the watch. Idempotent."""
        self._stop("normally", None)

    def __call__(self, function: F) -> F:
        """As a decorator: each call of the function is a watch of its own."""
        from trainperf.watching.decorator import decorate

        self._is_used()
        decorated: F = decorate(function, lambda: Watch(self._settings))
        return decorated

    def __deepcopy__(self, memo: object) -> Watch:
        """Itself: a process has one watch, and what it was stored in (a module, a trainer) may be copied."""
        return self

    def __reduce__(self) -> Any:
        raise TypeError("a trainperf.Watch cannot leave its process: keep it out of what is pickled or saved")

    def __repr__(self) -> str:
        return f"<trainperf.Watch {self._state} {self.path or self._why_off!r}>"


def watch(path: str | os.PathLike[str] | None = None, **options: Unpack[Options]) -> Watch:
    """Watches the training loop of this process, and says at the end why it is slow.

        with trainperf.watch("runs/a.tpr") as run:
            for batch in loader: ...

    Args:
        path: the run file to write, or a folder (or a path that ends with a slash) for a new file in it. None: a new
            file in $TRAINPERF_DIR; without that variable, a private temporary file, deleted with the object. Of several
            ranks (RANK and WORLD_SIZE, or torch.distributed) each writes its own: a.tpr becomes a.rank3.tpr.
        name: the run's name in reports. Runs of one name in one folder are compared with each other.
        overwrite: replace an existing file instead of raising FileExistsError.
        verbose: print the verdict to stderr at the end. None: unless TRAINPERF_LOG_LEVEL is error or critical.
        gil: how GIL waits are measured: auto (the most exact way that works here), exact, procfs, busy-only, off.
        cuda: how the GPU is traced by CUPTI, where there is one: auto or full (kernels in all steps), windows (in some
            of the steps, chosen by chance, where all of them would cost more than half of the budget), or off.
        sampler_hz: stack samples per second, of the step thread and of the GIL's holder; 0: none. Where a sample is
            expensive the rate falls, to 40 % of this at least, to stay within 0.4 % of a core; the first 128 samples
            come up to four times as fast.
        budget: the share of the run's time that trainperf may cost before it samples less often.
        flag_shares: the share of its time from which a step is flagged, as
            {"data_starved": 0.1, "gil_contended": 0.1}.
        on_flag: called with each flagged step (a ClosedStep), on the training thread, between two steps, 0.2 to 0.4 s
            after it closed (docs/flags.md). What it raises is shown once, and never breaks training.

    Raises ValueError for an option or a TRAINPERF_* variable that makes no sense. Entering raises AlreadyWatchingError
    when this process is being watched, and OSError when the file cannot be made. Later nothing raises.
    """
    from trainperf.settings import resolve  # here, for a light import

    return Watch(resolve(path, **options))


def start(path: str | os.PathLike[str] | None = None, **options: Unpack[Options]) -> Watch:
    """Starts a watch that lasts until stop() or the end of the process. Options and errors are those of watch()."""
    return watch(path, **options).__enter__()


def stop() -> Watch | None:
    """Ends the watch of this process and returns it; None if there is none."""
    current = process.current()
    if not isinstance(current, Watch):
        return None
    current.stop()
    return current


def step() -> None:
    """Ends a step of the current watch: see Watch.step(). Does nothing without one."""
    current = process.latest
    if current is not None:
        current.step()


def phase(name: str) -> PhaseBracket:
    """Marks a phase of the current watch: see Watch.phase(). Does nothing without one."""
    current = process.latest
    return NO_BRACKET if current is None else current.phase(name)
