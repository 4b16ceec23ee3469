"""What a Run hands out: plain frozen records. Times are nanoseconds unless a name says otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]


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
    causes_ns: Int64Array  # (rows, 20), in the order of _native.CAUSES; each row sums to wall_ns
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


_TIMED = 1 << 16  # kTimedWait in event.h


@dataclass(frozen=True, slots=True)
class Detail:
    """A sum over the steps of one section; see DetailKind in records.h."""

    kind: Literal[
        "gil_wait", "sample", "hold", "gc", "call", "idle_gil_wait", "beside", "stop_the_world", "object_lock"
    ]
    section: int
    phase: str
    state: str  # samples: python, native, parallel, blocked, gil_wait, unknown; call: which
    thread: Thread | None
    stack: int  # Run.stack(stack) gives the frames
    code: int  # blocked sample: of `syscall`, `timed`; gc: generation; idle_gil_wait: device; beside: BesideSign
    ns: int
    count: int
    steps: int  # in how many steps
    folded: int = (
        0  # > 0: the sum of that many small ones of this phase and state; their thread, stack and code are gone
    )

    @property
    def syscall(self) -> int:
        """Of a blocked sample: the system call's number; -1: asleep outside of one."""
        return self.code % _TIMED if self.code >= 0 else self.code

    @property
    def timed(self) -> bool:
        """Of a blocked sample: it waits for a lock, and a timeout ends that within 0.1 s. Older runs say so of none."""
        return self.code >= _TIMED


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a step's own timeline."""

    start_ns: int
    end_ns: int
    phase: str
    mechanism: str  # "unknown": whatever of the phase is neither a GIL wait nor a collection
    thread: Thread | None  # gil_wait: the holder; stop_the_world: who stopped all threads; object_lock: as gil_wait
    stack: int  # theirs; object_lock: of the thread that waited


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
    cpu_share: float | None  # of one CPU, from its first reading at work to its last; None with fewer than two
    seconds: float  # between these
    states: Mapping[str, int]  # readings at work by state letter
    cpu_seconds: float = 0.0  # between its first and its last reading, its start too
    # Looks at work by system call (-1: in none), and whether it was a futex that processes share. Older runs have none.
    waits: Mapping[tuple[int, bool], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkerSamples:
    """What a loader's workers, or a child process, were seen doing, in samples of their main threads."""

    stack: int  # 0: not known
    state: str  # as a Detail's of the training thread; "unknown": it ran, in Python or native code
    syscall: int  # that it waited in; -1: in none, as for a page of memory; 0 where it ran
    count: int


@dataclass(frozen=True, slots=True)
class Child:
    """A process that the run started, or one of those started, beside DataLoader workers."""

    pid: int
    name: str  # as multiprocessing calls it, "ForkPoolWorker-1"; "" where it does not
    command: str  # "ffmpeg", "python serve.py": no arguments
    first_ns: int  # of its life within the watch, as it was seen
    last_ns: int
    cpu_seconds: float  # between these
    inside: Sequence[WorkerSamples] = ()  # of its main thread, where that runs this Python


@dataclass(frozen=True, slots=True)
class Awaited:
    """Fetches that waited for a batch to be made."""

    # The number of the one that alone had something to do: the others had made all that they had been asked for, or had
    # read their parts of a stream; -1: several had.
    worker: int
    reading: int  # workers that had not read their parts; all, where there is no stream
    count: int
    wait_ns: int  # of these fetches' wall time


@dataclass(frozen=True, slots=True)
class LoaderFetches:
    """Fetches of one loader; `first` fetches of an iterator are kept apart, exhausted ones only counted."""

    count: int
    wall_ns: int
    cpu_ns: int
    gil_wait_ns: int
    max_ns: int
    ready: Mapping[int, int]  # batches ready at the fetch -> fetches (-1: not known)
    ready_wall_ns: Mapping[int, int]  # batches ready at the fetch -> wall ns of these fetches
    awaited: Sequence[Awaited]  # but those for which several had something to do, as all read
    first_count: int
    first_wall_ns: int
    off_thread_count: int  # on other threads than the step thread
    off_thread_wall_ns: int
    validation_count: int
    validation_wall_ns: int
    exhausted_count: int  # ends of an epoch, also of a validation's


@dataclass(frozen=True, slots=True)
class Loader:
    id: int
    description: Mapping[
        str, Any
    ]  # dataset, num_workers, batch_size, pin_memory, persistent_workers, prefetch_factor, ...
    fetches: LoaderFetches
    workers: Sequence[Worker]
    inside: Sequence[WorkerSamples] = ()  # of all workers together; older runs have none


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
    rss_bytes: int  # without mapped files
    threads: int
    runnable: int
    # -1: not known, as in files before version 3
    faults: int = -1  # minor page faults of the step thread, so far
    system_ns: int = -1  # CPU time of the step thread in the kernel, so far
    returned_bytes: int = -1  # the most that private writable memory shrank by in the second before


@dataclass(frozen=True, slots=True)
class DeviceSteps:
    """What one device did: a row per row of Run.steps, in the same order; in the steps' own wall-clock windows."""

    untraced: Int64Array  # steps in which its work was not traced
    untraced_ns: Int64Array  # their wall time; as measured, with busy_ns and idle_ns it is that of all steps
    busy_ns: Int64Array  # a kernel, copy or memset ran
    idle_ns: Int64Array
    idle_causes_ns: Int64Array  # (rows, 20), in the order of CAUSES; each row sums to idle_ns
    kernels: Int64Array
    kernel_ns: Int64Array  # a kernel ran
    launches: Int64Array
    copies: Int64Array
    copy_ns: Int64Array
    exposed_copy_ns: Int64Array  # a copy ran, and no kernel
    collective_ns: Int64Array
    exposed_collective_ns: Int64Array  # a collective ran, and no other kernel
    tiny_kernels: Int64Array  # shorter than 10 us, or than the call that launched them
    starved_gaps: Int64Array  # how often it idled until work was launched
    between_ns: Int64Array  # idle between two kernels that were both launched already: a part of idle, launch
    incomplete: Int64Array  # steps of which records were lost


@dataclass(frozen=True, slots=True)
class Traced:
    """What the figures of a device rest on, where its work was traced in some of the steps only."""

    steps: int
    windows: int  # of steps that stand for others; the run's start is none
    idle_low: float  # the idle share of the run's time: a 95 % interval; nan: one window tells of no other
    idle_high: float


@dataclass(frozen=True, slots=True)
class DeviceTotals:
    """Device.whole summed over the run, and what is known of the run only."""

    busy_ns: int
    idle_ns: int
    idle_causes_ns: Mapping[str, int]  # every cause
    kernels: int
    kernel_ns: int
    launches: int
    copies: int
    copy_ns: int
    exposed_copy_ns: int
    collective_ns: int
    exposed_collective_ns: int
    tiny_kernels: int
    starved_gaps: int
    between_ns: int
    incomplete: int
    first_kernel_ns: float  # from a step's start to that of its first kernel; mean
    queue_depth: float  # launched but not yet running at the end of a step; mean
    lead_ns_median: int  # from the end of a kernel's launch call to its start; 0: not known
    critical_host_share: float  # of the steps' wall time: the device idled because of the host


@dataclass(frozen=True, slots=True)
class Device:
    id: int
    name: str  # "" when it was never learned
    description: Mapping[str, Any]
    steps: DeviceSteps  # as measured: of steps that were traced
    whole: DeviceSteps  # with estimates of the steps that were not; the same as `steps` where all were
    totals: DeviceTotals
    traced: Traced | None  # None: all steps were

    @property
    def scale(self) -> float:
        """Of what is summed over traced steps (kernels, copies, launches): all steps have so many times as many."""
        measured = int(self.steps.kernels.sum())
        return self.totals.kernels / measured if measured else 1.0


@dataclass(frozen=True, slots=True)
class Kernel:
    """All kernels of one name; folded > 0: the sum of so many other names, the cheap ones."""

    name: str
    kind: Literal["tensor_core", "no_tensor_core", "collective", "unknown"]
    eligible: bool  # a matrix product, convolution or attention
    count: int
    ns: int
    max_ns: int
    tiny: int
    steps: int
    folded: int = 0


@dataclass(frozen=True, slots=True)
class Copy:
    """All copies of one sort."""

    direction: Literal["h2d", "d2h", "d2d", "p2p", "h2h", "unknown"]
    src: Literal["pageable", "pinned", "device", "managed", "unknown"]
    dst: Literal["pageable", "pinned", "device", "managed", "unknown"]
    count: int
    bytes: int
    ns: int
    exposed_ns: int  # while no kernel ran
    small: int  # of at most 16 bytes
    steps: int


@dataclass(frozen=True, slots=True)
class Call:
    """All calls of one sort on one thread, within steps."""

    call: str  # HostCall of cpp/trainperf/event/event.h: launch_kernel, stream_sync, alloc ...
    count: int
    failed: int
    ns: int
    max_ns: int
    steps: int
    thread: Thread | None


@dataclass(frozen=True, slots=True)
class DeviceSegment:
    """A piece of a device's timeline within a kept step."""

    device: int
    start_ns: int
    end_ns: int
    what: Literal["kernel", "copy", "memset", "collective", "idle"]
    cause: str  # of what is idle, else ""
    name: str
