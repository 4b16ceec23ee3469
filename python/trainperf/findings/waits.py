"""What the training thread sleeps for, and whom it waits for: as stacks, system calls and other threads show it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal, get_args

from trainperf.findings import frames, places
from trainperf.findings.frames import FrameLike, is_stdlib_file
from trainperf.findings.model import Params, Said
from trainperf.findings.text import Share
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.model import Cell
    from trainperf.findings.places import Beside, Spot
    from trainperf.runfile import Detail

# -- system calls: names and kinds, by number

Waiting = Literal["lock", "sleep", "file", "socket", "process", "other"]

# Only calls that block: name, number on x86-64 and on AArch64 (-: it has none), by the kernel's asm/unistd.h.
_CALLS: Final[dict[Waiting, str]] = {
    "lock": "futex 202 98, futex_waitv 449 449, flock 73 32, fcntl 72 25",
    "sleep": "nanosleep 35 101, clock_nanosleep 230 115, pause 34 -",
    "file": "read 0 63, pread64 17 67, readv 19 65, preadv 295 69, preadv2 327 286, "
    "open 2 -, openat 257 56, openat2 437 437, newfstatat 262 79, statx 332 291, getdents64 217 61, "
    "io_getevents 208 4, io_uring_enter 426 426, sendfile 40 71, copy_file_range 326 285, "
    "write 1 64, pwrite64 18 68, writev 20 66, pwritev 296 70, pwritev2 328 287, "
    "fsync 74 82, fdatasync 75 83, msync 26 227, "
    "rename 82 -, renameat 264 38, renameat2 316 276, unlink 87 -, unlinkat 263 35",
    "socket": "recvfrom 45 207, recvmsg 47 212, sendto 44 206, sendmsg 46 211, connect 42 203, accept 43 202, "
    "accept4 288 242, poll 7 -, ppoll 271 73, select 23 -, pselect6 270 72, epoll_wait 232 -, epoll_pwait 281 22, "
    "epoll_pwait2 441 441",
    "process": "wait4 61 260, waitid 247 95",
}
_ROWS: Final = [(kind, row.split()) for kind, rows in _CALLS.items() for row in rows.split(", ")]
_KINDS: Final[dict[str, Waiting]] = {name: kind for kind, (name, _, _) in _ROWS}
_X86_64: Final = {int(number): name for _, (name, number, _) in _ROWS if number != "-"}
_AARCH64: Final = {int(number): name for _, (name, _, number) in _ROWS if number != "-"}
_TABLES: Final = {"x86_64": _X86_64, "amd64": _X86_64, "aarch64": _AARCH64, "arm64": _AARCH64}
_WRITES: Final = ("write", "pwrite", "fsync", "fdatasync", "msync", "rename", "unlink")


def syscall_name(number: int, machine: str) -> str:
    """ "futex" for 202 on x86_64; "system call 999" when it is not in the table or the machine is not known."""
    return _TABLES.get(machine.lower(), {}).get(number, f"system call {number}" if number >= 0 else "a system call")


def waiting_kind(name: str) -> Waiting:
    return _KINDS.get(name, "other")


def writes(name: str) -> bool:
    """To a file."""
    return name.startswith(_WRITES)


def call_of(samples: Iterable[Detail], machine: str) -> str:
    """The system call in which most of the waits among them went; "" where there is none, or none was known: the kernel
    reads a page, or does not tell."""
    calls: dict[int, int] = {}
    for d in samples:
        if d.state == "blocked":
            calls[d.syscall] = calls.get(d.syscall, 0) + d.ns
    most = max(calls, key=lambda c: calls[c], default=-1)
    return syscall_name(most, machine) if most >= 0 else ""


# -- whom it waits for

# How a loop is handed what other threads or processes make.
Handover = Literal["queue", "full_queue", "future", "pipe", "full_pipe", "signal", "thread_end"]

RANKS: Final = {"": "ranks", "even": "even_ranks", "late": "late_ranks"}  # by what is known of the other ranks' files
_FUTURES = {"_base.py": {"result", "exception", "wait", "as_completed", "result_iterator"}, "pool.py": {"get", "next"}}
_RAY: Final = re.compile(r"[/\\]ray[/\\]_private[/\\]worker\.py$")
_RAYS: Final = frozenset({"get", "get_objects", "wait"})
_PIPES: Final[dict[str, Handover]] = {  # multiprocessing.Connection: of Pipe, of a Manager's proxies
    **dict.fromkeys(("recv", "recv_bytes", "recv_bytes_into", "poll", "wait"), "pipe"),
    **dict.fromkeys(("send", "send_bytes"), "full_pipe"),
}
_THREADING: Final[dict[str, Handover]] = {"wait": "signal", "wait_for": "signal", "join": "thread_end"}


@dataclass(frozen=True, slots=True)
class Wait:
    """Where the training thread is, as samples tell, and whom it waits for there."""

    spots: Sequence[Spot]  # the costliest first
    beside: Sequence[Beside]  # of a wait for others: where they are
    timed: bool  # a timeout may be what ends it

    @property
    def top(self) -> Spot | None:
        return self.spots[0] if self.spots else None

    @property
    def samples(self) -> int:
        return sum(s.samples for s in self.spots)

    @property
    def awaited(self) -> list[Beside]:
        """Those who had what it waited for."""
        return awaited(self.beside, timed=self.timed)

    @property
    def waited_for(self) -> Beside | None:
        """Of several it is not known who that is."""
        return self.awaited[0] if len(self.awaited) == 1 else None

    @property
    def who(self) -> str:
        """ "" for nobody."""
        return self.waited_for.name if self.waited_for is not None else ""

    def others(self, facts: Facts) -> Params:
        """Whom it waits for, and where others are meanwhile."""
        one = self.waited_for
        return {
            "awaited": one.said if one is not None else None,
            "awaited_at": facts.label(one.spot) if one is not None else None,
            "beside": tuple(
                {
                    "name": b.said,
                    "place": facts.label(b.spot),
                    "share": Share(b.share),
                    "doubt": None if b.awaited else Said("not_awaited" if b.still else "maybe_awaited"),
                }
                for b in self.beside[:3]
            ),
        }


@dataclass(frozen=True, slots=True)
class Asleep(Wait):
    """Why it sleeps in the costliest place."""

    kind: str
    call: str  # the system call of that wait; "" where it is not known


def asleep(facts: Facts, seen: Sequence[Detail], cells: Mapping[Cell, int]) -> Asleep:
    """Of samples of it asleep. `cells`: the time that they are of."""
    phases = {phase for phase, _ in cells}
    spots = facts.spots(seen, by_line=True)  # another line may wait for another reason
    top = spots[0] if spots else None
    call = call_of((d for d in seen if top is None or facts.is_at(d, top, line=True)), facts.machine)
    kind = (_by_stack(top.frames) if top is not None else "") or _by_call(facts, top, call, cells)
    for_others = kind == "lock" or kind in get_args(Handover)
    timed = for_others and top is not None and facts.timed(seen, top, line=True)
    # Where others were is known of all that is asleep in these phases.
    every = facts.samples(phases=phases, states=["blocked"])
    known = for_others and sum(d.ns for d in seen) >= limit("most_share") * sum(d.ns for d in every)
    beside = facts.beside(phases) if known else []
    if known and kind == "thread_end" and not awaited(beside, timed=timed):
        beside = [*facts.passing(phases), *beside]
    return Asleep(spots, beside, timed, kind, call)


def awaited(beside: Sequence[Beside], *, timed: bool) -> list[Beside]:
    """Those who ran as waits ended, which looks the same where a timer ends them."""
    return [] if timed else [b for b in beside if b.awaited]


def for_others(facts: Facts, seen: Sequence[Detail], cells: Mapping[Cell, int]) -> tuple[Asleep, float] | None:
    """Of samples in any state: what other threads or processes are waited for in most of their time, and in which share
    of it. None where that is not so, or a timeout ends the waits."""
    blocked = [d for d in seen if d.state == "blocked"]
    found = asleep(facts, blocked, cells)
    if found.timed or found.top is None:
        return None
    lock = found.kind == "lock" and found.waited_for is not None  # else threads of a library's may compute
    if not lock and found.kind not in get_args(Handover):
        return None
    mine = [d for d in blocked if (handover(facts.run.stack(d.stack)) or "lock") == found.kind]
    share = sum(d.ns for d in mine) / max(1, sum(d.ns for d in seen))
    return (found, share) if share >= limit("half_share") else None


def handover(stack: Sequence[FrameLike]) -> Handover | None:
    """What a thread waits for there, or does: the innermost queue or future of its stack; else a pipe, the end of a
    thread, or what a Condition, an Event, a Barrier or a Semaphore waits for: these sleep in a lock that nobody holds.
    """
    other: Handover | None = None
    for f in stack:
        if f.function.rsplit(".", 1)[-1] in _RAYS and _RAY.search(f.file):
            return "future"
        if not is_stdlib_file(f.file):
            continue
        folder, file = f.file.replace("\\", "/").rsplit("/", 2)[-2:]
        function = f.function.rsplit(".", 1)[-1]
        if file in ("queue.py", "queues.py") and function in ("get", "_get"):
            return "queue"
        if file in ("queue.py", "queues.py") and function in ("put", "_put"):
            return "full_queue"
        if folder in ("futures", "multiprocessing") and function in _FUTURES.get(file, ()):
            return "future"
        if (folder, file) == ("multiprocessing", "connection.py"):
            other = other or _PIPES.get(function)
        elif file == "threading.py":
            other = other or _THREADING.get(function)
    return other


def _in_event_loop(stack: Sequence[FrameLike]) -> bool:
    """asyncio waits there until any of its coroutines can go on: for a timer, a socket, another process. In none of
    them: who awaits what is in no stack."""
    places = [f.file.replace("\\", "/") if is_stdlib_file(f.file) else "" for f in stack]
    return any(
        at.endswith("/selectors.py") and caller.endswith("/asyncio/base_events.py") for at, caller in pairwise(places)
    )


def waits_in(facts: Facts, top: Spot | None, samples: Sequence[Detail]) -> str:
    """What most of these waits are in: "sleep: nanosleep"; "" where it is not known."""
    if top is not None and _in_event_loop(top.frames):
        return "asyncio's event loop"
    name = call_of(samples, facts.machine)
    kind = waiting_kind(name)
    return f"{kind}: {name}" if kind != "other" else name


def _by_stack(stack: Sequence[FrameLike]) -> str:
    """The kind of wait that the stack alone tells; "" for none."""
    if frames.stops_workers(stack):
        return "workers"
    if frames.in_collective(stack):
        return "collective"
    return handover(stack) or ("event_loop" if _in_event_loop(stack) else "")


def _by_call(facts: Facts, top: Spot | None, call: str, cells: Mapping[Cell, int]) -> str:
    kind: str = waiting_kind(call)
    if top is not None and kind in ("sleep", "file", "lock", "socket") and places.asks_database(facts, top):
        return "database"
    if top is not None and kind in ("socket", "file", "lock") and (server := frames.client_of(top.frames)):
        return "http_server" if server == "HTTP server" else server
    if (
        top is not None
        and kind in ("socket", "file", "other")
        and any(is_stdlib_file(f.file) and os.path.basename(f.file) == "subprocess.py" for f in top.frames)
    ):
        return "process"  # its pipes
    if kind in ("lock", "socket") and _exchanges_gradients(facts, top, cells):
        return RANKS[facts.standing]
    return kind


def _exchanges_gradients(facts: Facts, top: Spot | None, cells: Mapping[Cell, int]) -> bool:
    """Backward itself waits for a lock only for other threads: in a job of several ranks for those that exchange,
    unless a GPU's backward runs in a thread of autograd's."""
    meta = facts.run.meta
    if facts.number("world_size") <= 1 or meta.get("process_group") != "1" or facts.run.feeds_device:
        return False
    if top is not None and frames.below_backward(top.frames):  # a hook of the user's
        return False
    in_backward = sum(ns for (phase, _), ns in cells.items() if phase == "backward")
    return in_backward >= limit("half_share") * sum(cells.values())
