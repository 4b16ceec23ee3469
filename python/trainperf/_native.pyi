"""The compiled core. Private: use trainperf.watch() and trainperf.open()."""

import types
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

VERSION: Final[str]
STUB: Final[str]  # SHA-256 of this file, as it was when the module was built
PHASES: Final[tuple[str, ...]]
CAUSES: Final[tuple[str, ...]]
MECHANISMS: Final[tuple[str, ...]]

# Brackets (cpp/trainperf/event/event.h)
FETCH: Final[int]
LOADER_START: Final[int]
BACKWARD: Final[int]
OPTIMIZER: Final[int]
CHECKPOINT: Final[int]
LOGGING: Final[int]
EVAL: Final[int]
GC: Final[int]
COMPILE: Final[int]
CALLBACK: Final[int]

GRAD_DISABLED: Final[int]  # flag of begin(FETCH | EVAL)
FETCHED_BATCH: Final[int]  # values of end(FETCH)
FETCH_EXHAUSTED: Final[int]
FETCH_RAISED: Final[int]
FETCHED_BEHIND: Final[int]  # a batch, but those that were ready at its begin were later ones (head-of-line blocking)

# Marks, on the calling thread. Do nothing when no session runs, and in a forked child. Never raise after argument
# parsing.
def begin(bracket: int, object: int = 0, value: int = -1, flags: int = 0, /) -> None: ...
def end(bracket: int, value: int = 0, /) -> None: ...
def begin_phase(phase: int, /) -> None: ...
def end_phase(phase: int, /) -> None: ...
def step() -> bool:
    """Ends a step. Whether change_due()."""

def change_due() -> bool:
    """Whether change_cuda_tier() has something to do."""

def mute(on: int, /) -> None:
    """Until mute(0), marks on this thread do nothing: for code inside the loop that is not the loop's."""

def flags_waiting() -> bool:
    """Whether take_flagged() has steps, and this is the thread that trains. Meant to be asked at every step."""

def fetch_value(how: int, worker: int, reading: int, wait_ns: int, /) -> int:
    """For end(FETCH): how it ended, and of one that waited for a worker, which alone had something to do (-1: several
    had), how many had not read their parts of a stream, and how long that was so."""

def gc_callback(phase: str, info: dict[str, int], /) -> None:
    """For gc.callbacks: writes the GC bracket without a Python frame."""

class BracketFunction:
    """A function of the loop with a bracket around it, in C; bound, pickled and called as what it stands for."""

    @property
    def slow(self) -> Any: ...
    @property
    def before(self) -> Any: ...  # of step_functions(): hooks for torch's optimizers
    @property
    def after(self) -> Any: ...
    __call__: Callable[..., Any]
    def know(self, thing: object, number: int, /) -> None:
        """From now on `thing` is met without Python, if this is on. Who says so calls forget() before it dies."""

    def forget(self) -> None:
        """All that it knows."""

    def as_method(self) -> Any:
        """As it is put into a class: an instancemethod, by which torch.compile knows that it binds."""

    def switch_on(self, slow: Callable[..., Any], begin: Callable[..., Any], end: Callable[..., Any], /) -> None: ...
    def switch_off(self) -> None:
        """From now on it only passes through."""

# `begin` and `end`: those above, or a stand-in's.
def fetch_function(
    original: Callable[..., Any],
    slow: Callable[..., Any],  # for iterators that it does not know: takes its place
    is_grad_enabled: Callable[[], bool],
    begin: Callable[..., Any],
    end: Callable[..., Any],
    /,
) -> BracketFunction: ...
def backward_function(
    original: Callable[..., Any],
    first: Callable[[], Any],  # called before the first
    graph_task: Callable[[], int],  # -1: no backward runs
    tick: Callable[[], float],  # called after a backward; in how many seconds, at most one, it is to be called again
    begin: Callable[..., Any],
    end: Callable[..., Any],
    graph_task_address: int = 0,  # of the same as an `int f()` in C; 0: it is not known
    /,
) -> BracketFunction: ...
def logging_function(
    original: Callable[..., Any],
    apart: ApartState,
    begin: Callable[..., Any],
    end: Callable[..., Any],
    /,
) -> BracketFunction:
    """Of calls in a row only the first few leave marks: the others are timed together."""

def step_functions() -> BracketFunction: ...

class ActionBracket:
    """A context manager in C that is used again and again; entered, it is its name."""

    @property
    def name(self) -> str: ...
    __call__: Callable[..., Any]  # as a decorator
    def __enter__(self) -> str: ...
    def __exit__(self, *raised: object) -> None: ...

def action_bracket(
    name: str,
    start: Callable[[], object] = ...,  # not given: nobody listens
    stop: Callable[[], object] = ...,
    thread: int = 0,  # which hears them; threading.get_ident()
    /,
) -> ActionBracket: ...
def nothing(*args: Any, **kwargs: Any) -> None:
    """Returns None, whatever it is called with."""

class _Profile(Protocol):
    def __call__(self, action_name: str) -> ActionBracket: ...

def action_lookup(brackets: Mapping[str, ActionBracket], /) -> _Profile:
    """profile(action_name), which is brackets[action_name]."""

class ApartState:
    """The base of hooks.apart.Apart, and what begin() and end() write."""

    @property
    def thread(self) -> int: ...
    @thread.setter
    def thread(self, value: int, /) -> None: ...
    @property
    def measured(self) -> int: ...
    @measured.setter
    def measured(self, value: int, /) -> None: ...
    @property
    def depth(self) -> int: ...
    @depth.setter
    def depth(self, value: int, /) -> None: ...
    @property
    def ns(self) -> int: ...
    @ns.setter
    def ns(self, value: int, /) -> None: ...
    @property
    def since_ns(self) -> int: ...
    @since_ns.setter
    def since_ns(self, value: int, /) -> None: ...
    @property
    def fetched_since_ns(self) -> int: ...
    @fetched_since_ns.setter
    def fetched_since_ns(self, value: int, /) -> None: ...
    @property
    def evaluate(self) -> dict[int, int]: ...
    @evaluate.setter
    def evaluate(self, value: dict[int, int], /) -> None: ...
    def begin(self) -> None: ...
    def end(self) -> None: ...

class StretchSums:
    """What the stretches of one kind took: the base of integrations.costs.Cost."""

    @property
    def number(self) -> int: ...
    @number.setter
    def number(self, value: int, /) -> None: ...
    @property
    def count(self) -> int: ...
    @count.setter
    def count(self, value: int, /) -> None: ...
    @property
    def ns(self) -> int: ...
    @ns.setter
    def ns(self, value: int, /) -> None: ...
    @property
    def own_ns(self) -> int: ...
    @own_ns.setter
    def own_ns(self, value: int, /) -> None: ...
    @property
    def other_ns(self) -> int: ...
    @other_ns.setter
    def other_ns(self, value: int, /) -> None: ...
    @property
    def named_ns(self) -> int: ...
    @named_ns.setter
    def named_ns(self, value: int, /) -> None: ...
    @property
    def max_ns(self) -> int: ...
    @max_ns.setter
    def max_ns(self, value: int, /) -> None: ...

class StretchMeter:
    """The base of integrations.costs.CostMeter: nested stretches on one thread."""

    PLAIN: Final[int]  # how a stretch is marked in the timeline
    CALLBACK: Final[int]
    LOGGING: Final[int]
    PHASE: Final[int]

    # What the marks are: begin(), end(), begin_phase() and end_phase() above, or a stand-in's.
    __init__: Callable[..., None]
    @property
    def thread(self) -> int: ...
    @thread.setter
    def thread(self, value: int, /) -> None: ...
    @property
    def counting(self) -> bool: ...
    @counting.setter
    def counting(self, value: bool, /) -> None: ...
    def enter(self, sums: StretchSums | None, kind: int, phase: int = 0, /) -> None: ...
    def leave(self) -> None:
        """Does nothing where nothing was entered."""

    def unwind(self) -> None:
        """leave(), until nothing is: after an exception that left some open."""

    def inside(self, sums: StretchSums, /) -> bool:
        """Whether a stretch of these very sums is open: a method that calls its base class' is one call."""

    def here(self) -> bool:
        """Whether this is its thread."""

def analyze_trace(
    path: str,
    output: str,  # "": a private temporary file
    *,
    overwrite: bool = False,
    threads: int = 0,  # that parse; 0: as the machine has
    meta: dict[str, str] = {},
    progress: Callable[[float], object] | None = None,
) -> dict[str, Any]:
    """Writes the run file of a torch.profiler trace. Releases the GIL.

    `progress` is called every 100 ms with the share that is done; what it raises ends the work. Gives path, events,
    devices and rank (-1: not known). Raises ValueError for what is no trace, and as Session for both paths.
    """

class Census:
    """Which lists, dicts, sets and deques got longer between two looks at all that the garbage collector knows. Holds
    addresses and lengths alone, and runs nothing of the program's."""

    def __init__(self) -> None: ...
    def take(self) -> int:
        """The first look. Returns how many objects there are."""

    def grown(self, least: int) -> list[tuple[int, int, int]]:
        """The second look: (address, length then, length now) of at most 64 that have so many elements more, the most
        first. An address may be another object's by now."""

def count_floats(address: int, elements: int, kind: str, blocks: int, /) -> tuple[int, int, bool]:
    """(how many were looked at, how many of these are denormal, whether all are finite): of so many blocks of 16
    elements, which lie evenly over all of the memory. `kind`: float32, float64 or bfloat16."""

def frame_locals(frame: types.FrameType, /) -> dict[str, Any]:
    """Of a function that runs, as f_locals but without a dict that stays with the frame; {} for a module's or a class's
    frame. NotImplementedError where this Python's frames are not known."""

def container_length(thing: object, /) -> int:
    """Of a list, dict, set or deque, also of a class that derives from it, without its __len__; -1 of anything else."""

class Session:
    """A running watch: probes, collector thread, run file. One per process.

    Raises FileExistsError, FileNotFoundError, PermissionError or OSError for the path, ValueError for a path that is a
    directory (watch() refuses it before) or an option, and AlreadyWatchingError when another session runs.
    """

    def __init__(
        self,
        path: str,  # "": a private temporary file
        *,
        overwrite: bool = False,
        gil: str = "auto",  # auto | exact | procfs | busy-only | off
        sampler_hz: float = 60.0,  # 0: no sampler
        budget: float = 0.01,
        flag_shares: dict[str, float] = {},  # data_starved, gil_contended, host_stalled
        cuda: str = "auto",  # "full": kernels in all steps; "off": trace_cuda() does nothing
    ) -> None: ...
    @property
    def path(self) -> str: ...
    @property
    def steps_closed(self) -> int: ...
    def stop(self, ended: str) -> None:
        """Takes all probes out, writes the rest of the run, joins our threads. Idempotent.

        Releases the GIL while it waits.
        """
    def begins(self) -> None:
        """What the calling thread does from now on may be its first step: the watch is set up, or ends() was before."""
    def ends(self) -> None:
        """The loop is over, for now: what the calling thread does from now on is no part of its last step."""
    def flush(self) -> None:
        """Everything seen so far is in the run file when it returns. Releases the GIL."""
    def set_meta(self, key: str, value: str) -> None: ...
    def note(self, text: str) -> None: ...
    def set_overhead(self, place: str, ns: int) -> None:
        """What trainperf cost the training thread there, in all so far."""
    def set_tier(self, probe: str, tier: str, why: str = "") -> None: ...
    def set_object(self, id: int, kind: str, description_json: str) -> None: ...
    def watch_worker(self, loader: int, pid: int) -> None:
        """A DataLoader worker process, to be read from /proc once a second until it is gone."""
    def workers_at_work(self, loader: int) -> None:
        """Those of this loader that are watched have started: as many batches have come as there are."""
    def unnamed_threads(self) -> list[int]:
        """Native ids of threads that were seen and have no name yet. Cheap when there are none."""
    def name_thread(self, native_tid: int, name: str) -> None: ...
    def unnamed_children(self) -> list[int]:
        """Ids of processes that this one started and that have no name yet. Cheap when there are none."""
    def name_child(self, pid: int, name: str) -> None: ...
    def trace_cuda(self, folders: list[str], path: str = "") -> bool:
        """Begins to trace the GPU by CUPTI, if there is a driver; the tier `cuda` says how, or why not.

        True: it is traced. folders: where a libcupti may be, besides the one that is loaded already. Releases the GIL;
        so do the next two.
        """
    def pause_cuda(self) -> None:
        """Lets go of CUPTI for another user of it, until resume_cuda(). Nests."""
    def resume_cuda(self) -> None: ...
    def change_cuda_tier(self) -> None:
        """Changes what is traced of the GPU where that is due. On the training thread, between two operations."""
    def on_step_thread(self) -> bool:
        """Whether the calling thread is the one that trains; also after stop(), when the shortest run knows it."""
    # Closed steps are (index, wall_ns, StepFlags, causes_ns in the order of CAUSES), oldest first; also after
    # stop().
    def take_flagged(self) -> list[tuple[int, int, int, tuple[int, ...]]]:
        """Steps that were flagged since the last call; the last 1024 of them."""
    def recent_flagged(self) -> list[tuple[int, int, int, tuple[int, ...]]]:
        """The last 1024 flagged steps."""
    def recent_steps(self, after: int = -1) -> list[tuple[int, int, int, tuple[int, ...]]]:
        """The last 1024 steps that closed, of a higher index than `after`."""
    def step_totals(self) -> tuple[int, int, tuple[int, ...], tuple[int, int, int]]:
        """(steps, wall_ns, causes_ns, how many with each flag), summed since the start."""
