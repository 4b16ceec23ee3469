"""A run: the read-only view on a run file that findings and views read.

CONTRACT (to be filled in by the run-file work; names and meanings are fixed, the bodies are not):
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]

# StepFlag of cpp/trainperf/timeline/records.h
DATA_STARVED, GIL_CONTENDED, HOST_STALLED, INCOMPLETE = 1, 2, 4, 8
WARM_UP, HAS_VALIDATION, HAS_CHECKPOINT, HAS_LOADER_START = 16, 32, 64, 128


@dataclass(frozen=True, slots=True)
class StepTable:
    """Steps in order, one row each; in long runs a row stands for `count` neighbours (sums; min and max of wall)."""

    index: Int64Array  # (rows,) of the row's first step
    count: Int64Array
    start_ns: Int64Array
    wall_ns: Int64Array
    wall_min_ns: Int64Array
    wall_max_ns: Int64Array
    flags: Int64Array  # or-ed
    causes_ns: Int64Array  # (rows, 18), in the order of _native.CAUSES; each row sums to wall_ns
    phases_ns: Int64Array  # (rows, 9), in the order of _native.PHASES; each row sums to wall_ns
    fetches: Int64Array
    backwards: Int64Array
    optimizer_steps: Int64Array
    compile_ns: Int64Array


@dataclass(frozen=True, slots=True)
class Frame:
    file: str
    function: str
    line: int


@dataclass(frozen=True, slots=True)
class Thread:
    id: int
    native_tid: int
    name: str  # "" when it was never learned
    role: str  # "step", "autograd", "loader", "" ...
    gil_wait_ns: int
    gil_waits: int


@dataclass(frozen=True, slots=True)
class Detail:
    """A sum over the steps of one section; see DetailKind in records.h."""

    kind: Literal["gil_wait", "sample", "hold", "gc"]
    section: int
    phase: str
    state: str  # samples: python, native, parallel, blocked, gil_wait, unknown
    thread: Thread | None
    stack: int  # Run.stack(stack) gives the frames
    code: int  # sample: system call (blocked); gc: generation
    ns: int
    count: int
    steps: int  # in how many steps


@dataclass(frozen=True, slots=True)
class Span:
    kind: Literal["loader_start", "first_fetch", "validation", "checkpoint", "logging", "compile", "gc"]
    step: int
    start_ns: int
    end_ns: int
    cpu_ns: int
    object: int
    value: int
    thread: Thread | None


@dataclass(frozen=True, slots=True)
class SpanTotal:
    kind: str
    count: int
    ns: int
    steps: int
    value: int  # sum: checkpoint bytes


@dataclass(frozen=True, slots=True)
class Worker:
    pid: int
    cpu_share: float | None  # of one CPU, between its first and last reading; None with fewer than two readings
    seconds: float  # watched
    states: Mapping[str, int]  # readings by state letter


@dataclass(frozen=True, slots=True)
class LoaderFetches:
    """Fetches of one loader; `first` fetches of an iterator are kept apart, exhausted ones left out."""

    count: int
    wall_ns: int
    cpu_ns: int
    gil_wait_ns: int
    max_ns: int
    ready: Mapping[int, int]  # batches ready at the fetch -> fetches (-1: not known)
    ready_wall_ns: Mapping[int, int]  # batches ready at the fetch -> wall ns of these fetches
    first_count: int
    first_wall_ns: int
    off_thread_count: int  # on other threads than the step thread
    off_thread_wall_ns: int
    validation_count: int
    validation_wall_ns: int


@dataclass(frozen=True, slots=True)
class Loader:
    id: int
    description: Mapping[str, Any]  # dataset, num_workers, batch_size, pin_memory, persistent_workers, prefetch_factor, ...
    fetches: LoaderFetches
    workers: Sequence[Worker]


@dataclass(frozen=True, slots=True)
class Tier:
    probe: str
    tier: str
    why: str


@dataclass(frozen=True, slots=True)
class Section:
    """Steps first_step .. first_step + steps - 1."""

    index: int
    first_step: int
    steps: int
    wall_ns: int
    matrix_ns: Int64Array  # (9 phases, 14 mechanisms)


@dataclass(frozen=True, slots=True)
class HostReading:
    at_ns: int
    process_cpu_ns: int
    machine_busy_ns: int
    machine_idle_ns: int
    throttled_ns: int
    rss_bytes: int
    threads: int
    runnable: int


class Run:
    """One run file, read-only; a context manager. trainperf.open() makes it.

    Attributes and methods that the rest of trainperf uses:

    path: Path; schema_version: int; meta: Mapping[str, str] ("started", "host", "python", "torch", "cpus", "torch_threads", "argv", "ended",
        "trainperf", "wall_ns", "name" ...); ended: "normally" | "exception" | "killed" (no end was written)
    step_count, incomplete, wall_ns (sum of the steps), lead_ns: int
    steps: StepTable
    wall_ms_quantile(q: float, *, warm_up: bool = False) -> float   # from the exact rows, or from the histogram of long runs
    cause_ns(cause: str) -> int; phase_ns(phase: str) -> int; matrix_ns: Int64Array (9, 14), whole run, including warm-up steps
    steps_with(cause: str, *, share: float = 0.10) -> int    # in how many steps the cause's share reaches that (rows for merged)
    sections: Sequence[Section]
    details(kind: str, *, phase: str | None = None, section: int | None = None) -> Sequence[Detail]   # costliest first
    spans(kind: str) -> Sequence[Span]; span_total(kind: str) -> SpanTotal
    threads: Mapping[int, Thread]; step_thread: Thread | None
    stack(stack_id: int) -> Sequence[Frame]    # innermost first; () for 0
    loaders: Mapping[int, Loader]; objects: Mapping[int, tuple[str, Mapping[str, Any]]]
    tiers: Mapping[str, Tier]; overhead_ns: Mapping[str, int]; dropped: Mapping[str, int]; notes: Sequence[str]; host: Sequence[HostReading]
    segments(step: int) -> Sequence[Segment]; worst_steps: Sequence[int]
    """

    path: Path
