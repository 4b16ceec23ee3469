"""Runs trials: each in a process of its own, of which nothing is left when it has ended.

with Trials(command) as trials:
    trial = trials.run(batches=200)
    trial = trials.run(Change.parse("num_workers=2"), loader=trial.loader, batches=200)
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from trainperf.errors import TrainperfError
from trainperf.prove import sandbox
from trainperf.prove.changes import Change
from trainperf.prove.writes import caches
from trainperf.prove.zygote import Forked, Zygote

# By its path: with -m the current folder would be looked through for its imports, and may hold a random.py.
_CHILD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "child.py")
_LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "mpirun", "srun")
_LAUNCHING_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")
_MARK = "_TRAINPERF_TRIAL"  # in the environment of every process of these trials: whose they are
_LONGEST_SOCKET = 107  # bytes, of the name of a Unix socket
_FULL = 1 << 20  # bytes that are left: a run file alone takes some hundred thousand
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Command:
    """What a person would have typed to train."""

    target: str
    arguments: tuple[str, ...] = ()
    module: bool = False
    python: str = sys.executable

    @classmethod
    def parse(cls, words: Sequence[str]) -> Command:
        """ "python train.py --lr 1", "train.py --lr 1", "python -m pkg.train". Raises TrainperfError for another."""
        words = list(words)
        python = sys.executable
        if words and os.path.basename(words[0]).startswith("python") and not os.path.isfile(f"{words[0]}.py"):
            name = words.pop(0)
            found = shutil.which(name)
            if found is None:
                raise TrainperfError(f"there is no {name}: give the script alone, or a python that exists")
            python = found
            while words and words[0] in ("-u", "-B", "-O", "-s", "-E"):  # of no account for what is measured
                words.pop(0)
        module = bool(words) and words[0] == "-m"
        words = words[1:] if module else words
        if not words:
            raise TrainperfError("no script is given: put one after --, as in -- python train.py")
        if os.path.basename(words[0]) in _LAUNCHERS or (module and words[0] in _LAUNCHING_MODULES):
            raise TrainperfError(
                f"{words[0]} starts several processes, and trials are of one: give the script itself, for one rank"
            )
        if words[0].startswith("-"):
            raise TrainperfError(f"{words[0]}: give a script, or a module with -m, after --")
        return cls(words[0], tuple(words[1:]), module, python)

    def __str__(self) -> str:
        return f"-m {self.target}" if self.module else self.target


@dataclass(frozen=True, slots=True)
class Trial:
    """What one process saw; times are seconds of one clock."""

    ended: str  # steps, script, error, overwrite, hung
    error: str = ""
    record: Mapping[str, Any] = field(default_factory=dict)
    run_file: str = ""
    seconds: float = 0.0  # that the process took in all
    log: str = ""
    started: bool = False  # other processes, which were there when it hung

    @property
    def finished(self) -> bool:
        return self.ended in ("steps", "script")

    @property
    def loader(self) -> Mapping[str, Any] | None:
        """The one that trains, as the place of the call that made it."""
        number = self.record.get("trains")
        if number is None:
            return None
        loaders = self.record["loaders"]
        mine = _origin(loaders, loaders[number])
        alike = [d for d in loaders if d["chain"] == mine["chain"]]
        others = [d for d in alike if d is not mine and not d["trained"] and d["dataset"] != mine["dataset"]]
        nth = next(i for i, d in enumerate(alike) if d is mine) if others else None
        own = (mine["chain"], mine.get("dataset"))  # made anew for another epoch
        beside = [d for d in loaders if d["chain"][:1] == mine["chain"][:1] and (d["chain"], d.get("dataset")) != own]
        return {**mine, "nth": nth, "beside": len(beside)}


def _origin(loaders: Sequence[Mapping[str, Any]], mine: Mapping[str, Any]) -> Mapping[str, Any]:
    """Frameworks make a loader anew from the user's, which is the one to change: the first of the same dataset."""
    chain = mine["chain"]
    if not chain or "site-packages" not in chain[0][0]:
        return mine
    same = (d for d in loaders if d.get("dataset") == mine.get("dataset") and d["chain"])
    return next(same, mine)


@dataclass(frozen=True, slots=True)
class Asked:
    """A trial to run: up to `batches` of the training loader, or `seconds` of the loop; both None: to the end."""

    change: Change | None = None
    loader: Mapping[str, Any] | None = None  # to change: Trial.loader of an earlier one
    batches: int | None = None
    seconds: float | None = None
    shift: int = 0  # of every seed
    timeout_s: float | None = None
    cached: int | None = None  # batches, which are then given again and again
    data_only: float | None = None  # seconds for which batches are read without training
    epoch: int | None = None  # batches after which each pass over a loader ends
    turns: Mapping[str, Any] | None = None  # what follows in the same process, as turns.policy_of() takes it
    fresh: bool = False  # in an interpreter of its own, not a fork of one that has imported torch
    watched: bool = True  # else there is no run file


def _folder_of_sockets() -> str:
    """A new one, for multiprocessing: in /tmp where TMPDIR's name would make those of its sockets too long, at which
    workers hang."""
    own = tempfile.gettempdir()
    fits = len(os.fsencode(f"{own}/trainperf-12345678/listener-12345678")) <= _LONGEST_SOCKET
    return tempfile.mkdtemp(prefix="trainperf-", dir=own if fits or not os.access("/tmp", os.W_OK) else "/tmp")


class Trials:
    """A context manager; on leaving, no process and no file of its trials is left."""

    def __init__(self, command: Command, *, writes: str = "auto") -> None:
        """`writes`: sandbox, allow; auto: a sandbox where there can be one, else files that exist are not touched."""
        self._command = command
        self._writes = writes
        self._number = 0
        self._process: subprocess.Popen[bytes] | Forked | None = None
        self._zygote: Zygote | None = None
        self.may_fork = True
        self.sandboxed: list[str] = []  # all folders that have an overlay
        self.named: list[str] = []  # those among them that a person would name
        self._beside: str | None = None  # a scratch folder for those that this process' own lies in
        self.no_sandbox = ""  # why there is none, or none of a folder that the script writes to
        self.seconds: list[float] = []

    def __enter__(self) -> Trials:
        self._folder = tempfile.mkdtemp(prefix="trainperf-try-")
        self._of_workers = _folder_of_sockets()
        try:
            if self._writes != "allow":
                self._open_sandbox()
        except BaseException:
            self._remove_folders()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with _uninterrupted():
            self._end()
            if self._zygote is not None:
                self._zygote.close()
            self._remove_folders()

    def _remove_folders(self) -> None:
        for folder in filter(None, (self._folder, self._of_workers, self._beside)):
            sandbox.remove(folder)

    @property
    def script(self) -> str:
        """As it was given: "train.py", "-m pkg.train"."""
        return str(self._command)

    def _open_sandbox(self) -> None:
        script = os.path.dirname(os.path.abspath(self._command.target)) if not self._command.module else ""
        try:
            named = sandbox.folders_of([os.getcwd(), *filter(None, [script])])
            self._widen(named, sandbox.all_that_is_written([self._folder, self._of_workers]))
        except TrainperfError as error:
            self.no_sandbox = str(error)
            if self._writes == "sandbox":
                raise TrainperfError(
                    f"there can be no sandbox here: {error}. --allow-writes lets trials write as the script does"
                ) from None

    def _widen(self, named: Sequence[str], others: Sequence[str]) -> None:
        """Raises TrainperfError where one of the named folders can have no overlay."""
        folders = sandbox.folders_of(named, others)
        if self._beside is None:
            ours = sandbox.around(self._folder, folders)
            places = [p for p in ("/var/tmp", "/tmp") if os.access(p, os.W_OK) and sandbox.around(p, folders) != ours]
            if ours and places:
                self._beside = tempfile.mkdtemp(prefix="trainperf-try-", dir=places[0])
        scratch = [os.path.join(self._folder, "tried"), *filter(None, [self._beside])]
        os.makedirs(scratch[0], exist_ok=True)
        failed = sandbox.try_out(folders, self._real(named), scratch)
        for path in named:
            around = sandbox.around(path, folders)
            if around in failed:
                raise TrainperfError(failed[around])
        self.named = [*named]
        self.sandboxed = [folder for folder in folders if folder not in failed]

    def _real(self, named: Sequence[str]) -> list[str]:
        """What stays as it is in an overlay: our own files, caches, and what is installed."""
        kept = [self._folder, self._of_workers, *caches(), sys.prefix]
        return [path for path in kept if not any(sandbox.around(n, [path]) for n in named)]

    def warm(self) -> None:
        """Starts the process that forks trials, which takes seconds, beside a first run that needs one of its own."""
        if self._zygote is None:
            self._zygote = Zygote(self._command.python, self._environment(None))

    def run(self, asked: Asked) -> Trial:
        """One trial. What the script writes that is outside of the sandbox makes that larger, and it is run again.

        Raises TrainperfError where no trial can be run at all.
        """
        while True:
            try:
                trial = self._once(asked)
            except OSError as error:
                if error.errno in _NO_ROOM:
                    raise self._full(self._folder) from None
                raise
            if trial.ended != "overwrite" or not self.sandboxed:
                return trial
            folder = os.path.dirname(trial.error)
            if sandbox.around(folder, self.sandboxed):
                return trial
            try:
                self._widen([*self.named, folder], self.sandboxed)
            except TrainperfError as error:
                self.no_sandbox = str(error)
                return trial

    def _once(self, asked: Asked) -> Trial:
        change, loader = asked.change, asked.loader
        self._number += 1
        stem = os.path.join(self._folder, str(self._number))
        command = Command.parse(change.against) if change is not None and change.against else self._command
        scratch = [f"{stem}.scratch", *([os.path.join(self._beside, str(self._number))] if self._beside else [])]
        spec = {
            "command": {"target": command.target, "arguments": command.arguments, "module": command.module},
            "folder": os.getcwd(),
            "settings": dict(change.settings) if change is not None else {},
            "loader": {"chain": loader["chain"], "nth": loader["nth"]} if loader else None,
            "batches": asked.batches,
            "seconds": asked.seconds,
            "patch": change.patch if change is not None else "",
            "shift": asked.shift,
            "cached": asked.cached,
            "data_only": asked.data_only,
            "epoch": asked.epoch,
            "turns": dict(asked.turns) if asked.turns else None,
            "watched": asked.watched,
            "guard": {
                "made": f"{stem}.made",
                "free": [self._folder, *caches(), *self.sandboxed],
                "guarded": [path for path in self._real(self.named) if path == sys.prefix],
            }
            if self._writes != "allow"
            else None,
            "sandbox": self.sandboxed,
            "real": self._real(self.named),
            "scratch": scratch,
            "of_workers": self._of_workers,
            "record": f"{stem}.json",
            "run_file": f"{stem}.tpr",
        }
        for place in scratch:
            os.mkdir(place)
        Path(f"{stem}.spec").write_text(json.dumps(spec))
        began = time.monotonic()
        started = False
        with open(f"{stem}.log", "wb") as log:
            try:
                with _uninterrupted():
                    self._process = self._start(command, f"{stem}.spec", log, asked)
                self._process.wait(asked.timeout_s)
                hung = False
            except subprocess.TimeoutExpired:
                hung = True
                started = len(self._processes()) > 1
            finally:
                code = self._end()
                _remove(_lines(f"{stem}.made"))  # each trial begins as the first did
        took = time.monotonic() - began
        self.seconds.append(took)
        full = next((p for p in scratch if _free_bytes(p) < _FULL), "")  # while what the script wrote is there
        for place in scratch:
            sandbox.remove(place)
        if hung:
            trial = Trial("hung", f"it had not ended after {took:.0f} s", seconds=took, started=started)
        else:
            trial = self._seen(stem, code, took)
        if full and trial.ended in ("hung", "error"):
            raise self._full(full)
        return trial

    def _seen(self, stem: str, code: int, took: float) -> Trial:
        text = Path(f"{stem}.log").read_text(errors="replace")
        try:
            record = json.loads(Path(f"{stem}.json").read_text())
        except FileNotFoundError:
            return Trial("error", _last_words(text, code), seconds=took, log=text)
        return Trial(record["ended"], record["error"], record, f"{stem}.tpr", took, text)

    def _full(self, scratch: str) -> TrainperfError:
        ours = scratch == self._folder or sandbox.around(scratch, [self._folder])
        where = os.path.dirname(self._folder if ours or self._beside is None else self._beside)
        return TrainperfError(f"trials write to {where}, which is full: set TMPDIR to a folder with room")

    def _start(self, command: Command, spec: str, log: IO[bytes], asked: Asked) -> subprocess.Popen[bytes] | Forked:
        if not asked.fresh and self.may_fork and command.python == self._command.python:
            self.warm()
            assert self._zygote is not None
            return self._zygote.fork(spec, log)
        return subprocess.Popen(
            [command.python, _CHILD, spec, str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=self._environment(asked.change),
            start_new_session=True,
        )

    def _environment(self, change: Change | None) -> dict[str, str]:
        environment = dict(os.environ) | {"PYTHONHASHSEED": "0", _MARK: self._folder}
        for ours in ("TRAINPERF_DIR", "TRAINPERF_DISABLE"):
            environment.pop(ours, None)
        package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        paths = [*filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)), package]
        environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
        return environment | (change.environment if change is not None else {})

    def _end(self) -> int:
        """Kills what is left of the last trial: its workers, and what it started in sessions of their own."""
        process, self._process = self._process, None
        if process is None:
            return 0
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
        for pid in self._processes():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        return code

    def _processes(self) -> list[int]:
        """Of the trial that runs, whoever their parent is by now."""
        mark = f"{_MARK}={self._folder}".encode()
        zygote = self._zygote.pid if self._zygote is not None else 0
        found = []
        for status in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended, or is another user's
                if int(status.name) != zygote and mark in (status / "environ").read_bytes().split(b"\0"):
                    found.append(int(status.name))
        return found


def _free_bytes(folder: str) -> int:
    room = os.statvfs(folder)
    return room.f_bavail * room.f_frsize


def _lines(path: str) -> list[str]:
    """What the guard of a trial has written, however that ended."""
    try:
        return [json.loads(line) for line in Path(path).read_text().split("\n")[:-1]]
    except FileNotFoundError:
        return []


def _remove(made: Sequence[str]) -> None:
    """What a trial made that is in no sandbox, innermost first; folders only if they are empty."""
    for path in reversed(made):
        with contextlib.suppress(OSError):
            os.rmdir(path) if os.path.isdir(path) else os.unlink(path)


def _last_words(log: str, code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"it was killed by {signal.Signals(-code).name}"
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return lines[-1][:300] if lines else f"it ended with {code}"


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Signals that end us wait until the block is left: between the start of a process and knowing it."""
    came: list[int] = []
    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    before = {n: signal.signal(n, lambda number, _: came.append(number)) for n in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
        for arrived in came:
            signal.raise_signal(arrived)


@contextlib.contextmanager
def ends_on_sigterm() -> Iterator[None]:
    """SIGTERM, and a terminal that is closed, leave by an exception: trials and their files are removed on the way."""

    def leave(number: int, _: Any) -> None:
        raise SystemExit(128 + number)

    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is not signal.SIG_IGN]  # as by nohup
    before = {number: signal.signal(number, leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
