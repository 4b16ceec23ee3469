"""A stand-in for trainperf._native that writes down what the hooks report."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from trainperf import _native

BRACKETS = (
    "FETCH",
    "LOADER_START",
    "BACKWARD",
    "OPTIMIZER",
    "CHECKPOINT",
    "LOGGING",
    "EVAL",
    "GC",
    "COMPILE",
    "CALLBACK",
)
PHASES = ("fetch", "transfer", "forward", "backward", "optimizer", "checkpoint", "validation", "logging", "other")


@dataclass(frozen=True)
class Mark:
    kind: str  # begin, end, step, begin_phase, end_phase
    bracket: str = ""
    object: int = 0
    value: int = -1
    flags: int = 0
    thread: int = field(default_factory=threading.get_ident, compare=False)

    def __str__(self) -> str:
        return f"{self.kind} {self.bracket}".strip()


class Session:
    """Takes what a _native.Session takes."""

    def __init__(self, path: str = "", **options: Any) -> None:
        self.path = path or "/nowhere/private.tpr"
        self.options = options
        self.meta: dict[str, str] = {}
        self.notes: list[str] = []
        self.overhead: dict[str, int] = {}
        self.tiers: dict[str, tuple[str, str]] = {}
        self.objects: dict[int, tuple[str, str]] = {}
        self.workers: list[tuple[int, int]] = []
        self.at_work: list[tuple[int, int]] = []  # (loader, workers that were watched)
        self.unnamed: list[int] = []
        self.children: list[int] = []
        self.names: dict[int, str] = {}
        self.ended: list[str] = []
        self.cuda: list[str] = []  # what was asked of the tracing of the GPU
        self.traces_cuda = False
        self.flagged: list[tuple[int, int, int, tuple[int, ...]]] = []

    def set_meta(self, key: str, value: str) -> None:
        assert isinstance(key, str) and isinstance(value, str)
        self.meta[key] = value

    def note(self, text: str) -> None:
        self.notes.append(text)

    def set_overhead(self, place: str, ns: int) -> None:
        self.overhead[place] = ns

    def set_tier(self, probe: str, tier: str, why: str = "") -> None:
        self.tiers[probe] = (tier, why)

    def set_object(self, id: int, kind: str, description_json: str) -> None:
        self.objects[id] = (kind, description_json)

    def watch_worker(self, loader: int, pid: int) -> None:
        self.workers.append((loader, pid))

    def workers_at_work(self, loader: int) -> None:
        self.at_work.append((loader, len(self.workers)))

    def unnamed_threads(self) -> list[int]:
        return [tid for tid in self.unnamed if tid not in self.names]

    def name_thread(self, native_tid: int, name: str) -> None:
        self.names[native_tid] = name

    def unnamed_children(self) -> list[int]:
        return [pid for pid in self.children if pid not in self.names]

    def name_child(self, pid: int, name: str) -> None:
        self.names[pid] = name

    def trace_cuda(self, folders: list[str], path: str = "") -> bool:
        self.cuda.append(f"trace {path}".strip())
        return self.traces_cuda

    def pause_cuda(self) -> None:
        self.cuda.append("pause")

    def resume_cuda(self) -> None:
        self.cuda.append("resume")

    def change_cuda_tier(self) -> None:
        self.cuda.append("change")

    def take_flagged(self) -> list[tuple[int, int, int, tuple[int, ...]]]:
        taken, self.flagged = self.flagged, []
        return taken

    def on_step_thread(self) -> bool:
        return True

    def flush(self) -> None:
        pass

    def stop(self, ended: str) -> None:
        self.ended.append(ended)


class Recorder:
    """Takes what trainperf._native takes."""

    VERSION = "0.1.0"
    PHASES = PHASES
    CAUSES = ("data_wait", "gil_wait", "compute")
    GRAD_DISABLED = 1
    FETCHED_BATCH, FETCH_EXHAUSTED, FETCH_RAISED, FETCHED_BEHIND = 0, 1, 2, 3
    FETCH, LOADER_START, BACKWARD, OPTIMIZER, CHECKPOINT, LOGGING, EVAL, GC, COMPILE, CALLBACK = range(len(BRACKETS))

    # Wrappers in C that call our begin and end.
    fetch_function = staticmethod(_native.fetch_function)
    backward_function = staticmethod(_native.backward_function)
    step_functions = staticmethod(_native.step_functions)
    fetch_value = staticmethod(_native.fetch_value)

    def __init__(self) -> None:
        self.marks: list[Mark] = []
        self.gc_marks = 0
        self.muted = False
        self.sessions: list[Session] = []

    def Session(self, path: str, **options: Any) -> Session:
        self.sessions.append(Session(path, **options))
        return self.sessions[-1]

    def begin(self, bracket: int, object: int = 0, value: int = -1, flags: int = 0, /) -> None:
        self.marks.append(Mark("begin", BRACKETS[bracket], object, value, flags))

    def end(self, bracket: int, value: int = 0, /) -> None:
        self.marks.append(Mark("end", BRACKETS[bracket], 0, value))

    def begin_phase(self, phase: int, /) -> None:
        self.marks.append(Mark("begin_phase", PHASES[phase]))

    def end_phase(self, phase: int, /) -> None:
        self.marks.append(Mark("end_phase", PHASES[phase]))

    def step(self) -> bool:
        self.marks.append(Mark("step"))
        return self.change_due()

    def change_due(self) -> bool:
        return False

    def mute(self, on: int, /) -> None:
        self.muted = bool(on)

    def flags_waiting(self) -> bool:
        return any(session.flagged for session in self.sessions)

    def gc_callback(self, phase: str, info: dict[str, int], /) -> None:
        self.gc_marks += 1

    # What the tests ask.

    def of(self, *brackets: str) -> list[Mark]:
        return [mark for mark in tuple(self.marks) if mark.bracket in brackets]

    def words(self, *brackets: str) -> list[str]:
        """["begin FETCH", "end FETCH", ...], of some brackets or of all."""
        return [str(mark) for mark in tuple(self.marks) if not brackets or mark.bracket in brackets]
