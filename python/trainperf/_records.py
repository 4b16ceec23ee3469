"""What a Run hands out: plain frozen records. Times are nanoseconds unless a name says otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]


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
    folded: int = (
        0  # > 0: the sum of that many small ones of this phase and state; their thread, stack and code are gone
    )


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a step's own timeline."""

    start_ns: int
    end_ns: int
    phase: str
    mechanism: str  # "unknown": whatever of the phase is neither a GIL wait nor a collection
    thread: Thread | None  # gil_wait: the holder
    stack: int  # gil_wait: the holder's


@dataclass(frozen=True, slots=True)
class Span:
    kind: Literal["loader_start", "first_fetch", "validation", "checkpoint", "logging", "compile", "gc", "callback"]
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
    description: Mapping[
        str, Any
    ]  # dataset, num_workers, batch_size, pin_memory, persistent_workers, prefetch_factor, ...
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
