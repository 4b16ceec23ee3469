"""watch(): a running measurement of this process, as a context manager, a decorator, or a start and a stop."""

from __future__ import annotations

import atexit
import dataclasses
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from trainperf.errors import AlreadyWatchingError, TrainperfError
from trainperf.watching.live import LiveSteps
from trainperf.watching.outcome import Outcome
from trainperf.watching.phases import NO_BRACKET, PHASES, PhaseBracket
from trainperf.watching.telling import start_logging, warn

if TYPE_CHECKING:
    from trainperf.hooks import Hooks
    from trainperf.hooks.between import Between
    from trainperf.run import Run
    from trainperf.settings import Settings
    from trainperf.watching.closed_steps import ClosedStep

F = TypeVar("F", bound=Callable[..., Any])

log = logging.getLogger("trainperf")

_clock = time.monotonic

_MAX_WRONG_PHASES = 64  # a name made in the loop, f"step {i}", would otherwise be remembered for each step


class Watch(LiveSteps, Outcome):
    """A watch, and the run that it makes. trainperf.watch() and trainperf.start() make it; it serves once.

    Entered, it watches this process until it is left. Nothing that it does raises into the loop: what fails is
    logged (logger "trainperf"), noted in the run, and switched off.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._state = "new"  # new, running, stopped
        self._pid = os.getpid()
        self._session: Any = None
        self._native: Any = None
        self._hooks: Hooks | None = None
        self._ticker: Any = None
        self._between: Between | None = None  # None: on_flag was not asked for
        self._brackets: Mapping[str, PhaseBracket] = {}
        self._last_error: BaseException | None = None
        self._why_off = ""
        self._path = ""
        self._private = False
        self._run: Run | None = None
        self._trouble = ""  # why the run is not where it should be
        self.gives_way = False  # to a watch that the program starts itself: `trainperf run` sets it
        self._logging: Callable[[], None] | None = None  # takes out our handler
        self._finalizer: weakref.finalize[Any, Watch] | None = None
        self._unused: weakref.finalize[Any, Watch] | None = None  # speaks up for a watch that nobody entered
        if not settings.disabled:
            self._unused = weakref.finalize(self, _never_entered, self._pid)

    # The loop's side.

    def step(self) -> None:
        """Ends a step here. Once called, it alone says where steps end; without it they are found by themselves."""
        native = self._native
        if native is not None:
            if self._between is not None:
                self._between.at_step()
            native.step()
            ticker = self._ticker
            if _clock() >= ticker.due:
                ticker.tick()

    def phase(self, name: str) -> PhaseBracket:
        """A bracket: `with run.phase("transfer"): ...`. A name that is no phase is logged once, and does nothing.

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
        _enter(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Closing a generator that holds the watch open is no failure of the training in it.
        failed = kind is not None and not issubclass(kind, GeneratorExit)
        self._stop("exception" if failed else "normally", kind)

    def _is_used(self) -> None:
        if self._unused is not None:
            self._unused.detach()

    def stop(self) -> None:
        """Ends the watch. Idempotent."""
        self._stop("normally", None)

    def __call__(self, function: F) -> F:
        """As a decorator: each call of the function is a watch of its own."""
        from trainperf.watching.decorator import decorate

        self._is_used()
        decorated: F = decorate(function, lambda: Watch(self._settings))
        return decorated

    def _start(self) -> None:
        """Called with _lock held."""
        if self._state != "new":
            raise TrainperfError("this watch has been used: make another with trainperf.watch()")
        settings = self._settings
        self._pid = os.getpid()
        native = _load_native(settings)
        if isinstance(native, str):
            self._why_off = native
            self._state = "running"
            log.log(logging.INFO if settings.disabled else logging.WARNING, "not watching: %s", native)
            return
        path = settings.run_path()
        if settings.directory:
            os.makedirs(settings.directory, exist_ok=True)
        try:
            self._logging = start_logging(settings)
            self._session = native.Session(
                path,
                overwrite=settings.overwrite,
                gil=settings.gil,
                sampler_hz=settings.sampler_hz,
                budget=settings.budget,
                flag_shares=dict(settings.flag_shares),
                cuda=settings.cuda != "off",
            )
            self._install(native, self._session, private=not path)
        except BaseException:  # Ctrl-C too
            self._abandon()
            raise

    def _install(self, native: Any, session: Any, *, private: bool) -> None:
        from trainperf.hooks import Hooks
        from trainperf.meta import describe_process

        self._path, self._private = session.path, private
        self._native, self._closed, self._causes = native, session, native.CAUSES
        self._brackets = {
            name: PhaseBracket(native.begin_phase, native.end_phase, number)
            for number, name in enumerate(native.PHASES)
        }
        self._last_error = getattr(sys, "last_value", None)
        meta = describe_process(session, self._settings, native.VERSION)
        if self._settings.name and not private:
            from trainperf.history import describe_history

            describe_history(session, meta)
        if self._settings.on_flag is not None:
            from trainperf.hooks.between import Between

            self._between = Between(native, session, self._settings.on_flag)
        settings = self._settings
        self._hooks = Hooks(
            native, session, between=self._between, cuda=settings.cuda != "off", cupti_path=settings.cupti_path
        )
        self._ticker = self._hooks.context.ticker
        self._hooks.install()
        atexit.register(self._at_exit)
        self._state = "running"
        session.begins()

    def _abandon(self) -> None:
        """A start that failed leaves nothing behind, and can be tried again."""
        session, hooks = self._session, self._hooks
        self._native = self._session = self._hooks = self._ticker = self._between = self._closed = None
        self._brackets, self._path, self._state = {}, "", "new"
        try:
            if hooks is not None:
                _take_out(hooks)
        finally:
            atexit.unregister(self._at_exit)
            if session is not None:
                try:
                    session.stop("exception")
                finally:
                    _remove_file(session.path, self._pid)  # only we made it: Session refuses one that is there
            self._stop_logging()

    def _stop(self, ended: str, kind: type[BaseException] | None) -> None:
        global _current
        if self._pid != os.getpid():
            return  # a forked child's copy: the watch is the parent's
        with _lock:
            if self._state != "running":
                return
            self._state = "stopped"
            between, self._between = self._between, None
            session = self._session
            try:
                if _current is self:
                    _current = None
                self._native = None
                self._brackets = {}
            finally:
                try:
                    if self._session is not None:
                        self._end_session(self._session, ended, kind)
                except BaseException:
                    self._stop_logging()
                    raise
        try:
            # Asked only now: a run that is shorter than the collector's sleep does not know it before its end.
            if between is not None and ended == "normally" and session.on_step_thread():
                between.finish()
        finally:
            try:
                self._show()
            finally:
                self._stop_logging()

    def _end_session(self, session: Any, ended: str, kind: type[BaseException] | None) -> None:
        """A Ctrl-C in the middle is raised at the end, when nothing of ours is left and the run is written."""
        try:
            if self._hooks is not None:
                _take_out(self._hooks)
            from trainperf.meta import describe_end

            describe_end(session)
            if kind is not None and ended == "exception":
                session.set_meta("exception", kind.__name__)
        except Exception as error:
            log.error("%s: %s", type(error).__name__, error, exc_info=True)
        finally:
            try:
                session.stop(ended)
            except Exception as error:
                self._trouble = str(error)
                if session.path != self._path:  # first of all where it is: a verdict's lines are short
                    why = self._trouble.removesuffix(f"; the whole run was saved to {session.path}")
                    why = why.removeprefix(f"the run file {self._path} could not be completed: ")
                    self._trouble = (
                        f"the run was saved to {session.path}: {why} ({os.path.basename(self._path)} was not completed)"
                    )
                log.error("%s", self._trouble)
            finally:
                self._path, self._session = session.path, None
                atexit.unregister(self._at_exit)
                if self._private:
                    self._finalizer = weakref.finalize(self, _remove_file, self._path, self._pid)

    def _discard(self, why: str) -> None:
        """Ends without a verdict or a file."""
        self._settings = dataclasses.replace(self._settings, verbose=False)
        self._stop("normally", None)
        if self._path:
            _remove_file(self._path, self._pid)
        self._why_off = why

    def _show(self) -> None:
        """The verdict, once, on stderr; and that the run could not be written where it should be, in any case."""
        global _said_why_off
        settings = self._settings
        show = settings.verbose and not settings.rank and not settings.disabled
        if self._why_off:
            show, _said_why_off = show and not _said_why_off, True
        told = False
        try:
            if show and self._why_off:
                print(self.summary(), file=sys.stderr, flush=True)
            elif show:
                from trainperf.report.console import print_verdict

                print_verdict(self.run, file=sys.stderr, keep=not self._private, notes=self._notes())
                told = True
        except Exception as error:
            log.error("the verdict could not be shown: %s: %s", type(error).__name__, error, exc_info=True)
        if self._trouble and not told:
            warn(self._trouble)

    def _stop_logging(self) -> None:
        undo, self._logging = self._logging, None
        if undo is not None:
            undo()

    def _at_exit(self) -> None:
        """For a start() without a stop(), and a generator that still holds the watch open."""
        error: BaseException | None = getattr(sys, "last_value", None)
        if error is not None and error is not self._last_error:
            self._stop("exception", type(error))
        else:
            self._stop("normally", None)

    def _forget(self) -> None:
        """In a forked child: nothing is reported, and nothing is left patched. The session is the parent's."""
        self._native = None
        self._brackets = {}
        self._between = None
        if self._hooks is not None:
            self._hooks.remove_in_child()
        atexit.unregister(self._at_exit)
        self._stop_logging()
        _left_to_parent.append(self)

    def __repr__(self) -> str:
        return f"<trainperf.Watch {self._state} {self._path or self._why_off!r}>"


# The process' one watch.

_lock = threading.RLock()
_current: Watch | None = None
_left_to_parent: list[Watch] = []  # kept alive in forked children, since ending them is not theirs
_fork_hook_set = False
_said_why_off = False


def watch(
    path: str | os.PathLike[str] | None = None,
    *,
    name: str | None = None,
    overwrite: bool = False,
    verbose: bool | None = None,
    gil: str = "auto",
    cuda: str = "auto",
    sampler_hz: float = 60.0,
    budget: float = 0.01,
    flag_shares: Mapping[str, float] | None = None,
    on_flag: Callable[[ClosedStep], Any] | None = None,
) -> Watch:
    """Watches this process' training loop, and tells at the end why it is slow.

        with trainperf.watch("runs/a.tpr") as run:
            for batch in loader: ...

    Args:
        path: the run file; a folder, or what ends with a slash: a new file in it. None: one in the folder
            $TRAINPERF_DIR, else a private temporary one that goes with the object. With several ranks (RANK,
            WORLD_SIZE) each writes its own: a.tpr becomes a.rank3.tpr.
        name: what the run is called in reports, and by which it is held against earlier ones in its folder.
        overwrite: replace a file that exists; without it that is a FileExistsError.
        verbose: print the verdict to stderr at the end. None: unless TRAINPERF_LOG_LEVEL is error or critical.
        gil: how GIL waits are measured: auto (the best that works here), exact, procfs, busy-only, off.
        cuda: auto, or off: whether the GPU is traced by CUPTI, where there is one.
        sampler_hz: how often the step thread and the GIL's holder are looked at, per second; 0: never.
        budget: the share of the run's time that trainperf may cost before it looks less often.
        flag_shares: from which share of a step it is flagged: {"data_starved": 0.1, "gil_contended": 0.1, ...}.
        on_flag: called with each flagged step (a ClosedStep), on the training thread, between two steps, 0.1 to 0.2 s
            after it closed (docs/flags.md). What it raises is shown once, and never breaks training.

    Raises ValueError for an option or a TRAINPERF_* variable that makes no sense. Entering raises AlreadyWatchingError
    when this process is being watched, and OSError when the file cannot be made. Later nothing raises.
    """
    from trainperf.settings import resolve  # here, for a light import

    return Watch(
        resolve(
            path,
            name=name,
            overwrite=overwrite,
            verbose=verbose,
            gil=gil,
            cuda=cuda,
            sampler_hz=sampler_hz,
            budget=budget,
            flag_shares=flag_shares,
            on_flag=on_flag,
        )
    )


def start(path: str | os.PathLike[str] | None = None, **options: Any) -> Watch:
    """watch() without a with: until stop(), or the end of the process. Same options, same errors."""
    return watch(path, **options).__enter__()


def stop() -> Watch | None:
    """Ends the watch of this process, and returns it; None when there is none."""
    current = _current_here()
    if current is not None:
        current.stop()
    return current


def step() -> None:
    """Watch.step() of the watch of this process, if there is one."""
    current = _current
    if current is not None:
        current.step()


def phase(name: str) -> PhaseBracket:
    """Watch.phase() of the watch of this process; a bracket that does nothing if there is none."""
    current = _current
    return NO_BRACKET if current is None else current.phase(name)


def _current_here() -> Watch | None:
    current = _current
    return current if current is not None and current._pid == os.getpid() else None


def _enter(new: Watch) -> None:
    global _current, _fork_hook_set
    with _lock:
        running = _current_here()
        if running is not None and running.gives_way:
            running._discard("the program watches itself")
            running = None
        if running is not None and "IPython" in sys.modules:
            from trainperf.notebook import cells

            if cells.left_open(running):
                running = None
        if running is not None and not new._settings.disabled:
            what = f" (into {running.path})" if running.path else ""
            raise AlreadyWatchingError(
                f"this process is being watched already{what}: leave that watch, or call trainperf.stop(), first"
            )
        if not _fork_hook_set:
            os.register_at_fork(after_in_child=_after_fork_in_child)
            _fork_hook_set = True
        new._start()
        try:
            if not new._settings.disabled:
                _current = new
                if "IPython" in sys.modules:
                    from trainperf.notebook import cells

                    cells.begins(new)
        except BaseException:  # Ctrl-C just here
            _current = None
            new._abandon()
            raise


def _after_fork_in_child() -> None:
    global _current, _lock
    _lock = threading.RLock()  # another thread of the parent may have held it
    left, _current = _current, None
    if left is not None:
        left._forget()


def _load_native(settings: Settings) -> Any:
    """The core; or a text that says why there is none."""
    if settings.disabled:
        return "TRAINPERF_DISABLE is set"
    try:
        from trainperf import _native
    except ImportError as error:
        return f"the compiled core cannot be imported on this platform ({sys.platform}): {error}"
    return _native


def _remove_file(path: str, pid: int) -> None:
    if os.getpid() == pid:
        for suffix in ("", "-wal", "-shm"):
            try:
                os.unlink(path + suffix)
            except FileNotFoundError:
                continue


def _never_entered(pid: int) -> None:
    if os.getpid() == pid:
        text = "a trainperf.watch() was never entered, and watched nothing: write `with trainperf.watch():`, or start()"
        log.warning(text)
        warn(text)


def _take_out(hooks: Hooks) -> None:
    try:
        hooks.remove()
    except BaseException:
        hooks.remove()  # an interrupt between two of them: goes on where it was
        raise
