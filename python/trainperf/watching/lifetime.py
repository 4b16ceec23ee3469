"""How a watch begins and ends: what it puts into this process, and that nothing of it stays."""

from __future__ import annotations

import atexit
import dataclasses
import os
import sys
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from trainperf import core
from trainperf.errors import TrainperfError
from trainperf.log import log
from trainperf.output import run_file_target
from trainperf.watching import process
from trainperf.watching.live import LiveSteps
from trainperf.watching.outcome import Outcome, absolute
from trainperf.watching.phases import PhaseBracket
from trainperf.watching.switch_interval import short_switch_interval
from trainperf.watching.telling import start_logging, warn
from trainperf.watching.verdict_in_child import gil_is_kept, print_in_child

if TYPE_CHECKING:
    from trainperf.hooks import Context, Hooks
    from trainperf.hooks.between import Between
    from trainperf.opened import OpenedRun
    from trainperf.settings import Settings


_said_why_off = False


class Lifetime(LiveSteps, Outcome):
    """The base of Watch."""

    gives_way = False  # to a watch that the program starts itself: `trainperf run` sets it
    gave_way = False

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
        self._path = self._given = ""
        self._private = False
        self._run: OpenedRun | None = None
        self._trouble = ""  # why the run is not where it should be
        self._logging: Callable[[], None] | None = None  # takes out our handler
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self._unused: weakref.finalize[Any, Any] | None = None  # speaks up for a watch that nobody entered
        if not settings.disabled:
            self._unused = weakref.finalize(self, _never_entered, self._pid)

    @property
    def context(self) -> Context | None:
        """What callbacks of frameworks report through; None: nothing is watched."""
        return None if self._hooks is None else self._hooks.context

    def _is_used(self) -> None:
        if self._unused is not None:
            self._unused.detach()

    def _disable(self, why: str) -> None:
        self._settings = dataclasses.replace(self._settings, disabled=why)

    def _begin(self) -> None:
        """Called with process.lock held."""
        if self._state != "new":
            raise TrainperfError("this watch has been used: make another with trainperf.watch()")
        settings = self._settings
        self._pid = os.getpid()
        with short_switch_interval():
            native = _load_native(settings)
        if isinstance(native, str):
            self._why_off = native
            self._state = "running"
            (log.info if settings.disabled else log.warning)("not watching: %s", native)
            return
        from trainperf.meta import of_group

        settings = self._settings = of_group(settings)
        self._given = settings.run_path()
        path = absolute(self._given)  # the program may go to another folder, as Hydra does
        if settings.directory:
            os.makedirs(settings.directory, exist_ok=True)
        path = run_file_target(path, overwrite=settings.overwrite, inputs=_program())
        try:
            self._logging = start_logging(settings)
            self._session = native.Session(
                path,
                overwrite=settings.overwrite,
                gil=settings.gil,
                sampler_hz=settings.sampler_hz,
                budget=settings.budget,
                flag_shares=dict(settings.flag_shares),
                cuda=settings.cuda,
            )
            with short_switch_interval():  # not while the session is made, which finds the interval by its value
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
        self._brackets, self._path, self._given, self._state = {}, "", "", "new"
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
        if self._pid != os.getpid():
            return  # a forked child's copy: the watch is the parent's
        with process.lock:
            if self._state != "running":
                return
            self._state = "stopped"
            between, self._between = self._between, None
            session = self._session
            try:
                process.ends(self)
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
                with short_switch_interval():
                    self._show(report_follows=ended == "normally" and _report_follows(self))
            finally:
                self._stop_logging()

    def _end_session(self, session: Any, ended: str, kind: type[BaseException] | None) -> None:
        """A Ctrl-C in the middle is raised at the end, when nothing of ours is left and the run is written."""
        try:
            session.ends()
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
                self._last_error = None  # its traceback holds whatever the frames in it do
                atexit.unregister(self._at_exit)
                if self._private:
                    self._finalizer = weakref.finalize(self, _remove_file, self._path, self._pid)

    def loop_ends(self) -> None:
        """What the calling thread does from now on is in no step, until a loop begins anew: a notebook's cell ended."""
        session = self._session
        if self.running and session is not None:
            session.ends()

    def loop_begins(self) -> None:
        """What the calling thread does from now on may be the first step after loop_ends()."""
        session = self._session
        if self.running and session is not None:
            session.begins()

    def _left_open(self, why: str, kind: type[BaseException] | None) -> None:
        """Ends in the place of the notebook's cell that began it, and will not end it any more."""
        if self._session is not None:
            self._session.note(f"{why}; it was closed")
        if not self._settings.verbose:  # else the verdict has the note
            print(f"trainperf: {why}; it was closed", file=sys.stderr)
        self._stop("exception" if kind is not None else "normally", kind)

    def leave_no_run(self, why: str) -> None:
        """Ends without a verdict or a file."""
        self._settings = dataclasses.replace(self._settings, verbose=False)
        self._stop("normally", None)
        if self._path:
            _remove_file(self._path, self._pid)
        self._why_off = why

    def _show(self, *, report_follows: bool = False) -> None:
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
            elif show and not report_follows:
                self._print_verdict()
                told = True
        except KeyboardInterrupt:
            self._say_unshown("interrupted")
            raise
        except Exception as error:
            log.error("the verdict could not be shown: %s: %s", type(error).__name__, error, exc_info=True)
            self._say_unshown(f"{type(error).__name__}: {error}")
        if self._trouble and not told:
            warn(self._trouble)

    def _say_unshown(self, why: str) -> None:
        if sys.stderr is not None:
            with suppress(Exception):  # stderr may be what failed
                see = f"; the run is kept: trainperf show {self.path}" if not self._private else ""
                print(f"trainperf: the verdict could not be shown: {why}{see}", file=sys.stderr, flush=True)

    def _print_verdict(self) -> None:
        keep, notes = not self._private, self._notes()
        if gil_is_kept() and print_in_child(self.path, keep=keep, notes=notes):
            return
        from trainperf.report.console import print_verdict

        print_verdict(self.run, file=sys.stderr, keep=keep, notes=notes)

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


def _load_native(settings: Settings) -> Any:
    """The core; or a text that says why there is none."""
    if settings.disabled:
        return settings.disabled
    try:
        return core.load()
    except ImportError as error:
        return str(error)


def _report_follows(watch: Lifetime) -> bool:
    if "IPython" not in sys.modules:
        return False
    from trainperf.notebook import cells

    return cells.shows_next(watch)


def _program() -> list[str]:
    """The script that runs: a run file never replaces it."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return [file] if isinstance(file, str) else []


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
        with short_switch_interval():
            hooks.remove()
    except BaseException:
        hooks.remove()  # an interrupt between two of them: goes on where it was
        raise
