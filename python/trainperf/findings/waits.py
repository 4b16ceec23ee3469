"""What the training thread sleeps for, and whom it waits for: as stacks, system calls and other threads show it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal, get_args

from trainperf.findings import frames, source_marks
from trainperf.findings.frames import FrameLike, is_stdlib_file
from trainperf.findings.model import Params, Said
from trainperf.findings.syscalls import call_of, waiting_kind
from trainperf.findings.text import Share
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.model import Cell
    from trainperf.findings.places import Beside, Spot
    from trainperf.runfile import Detail

# How a loop is handed what other threads or processes make.
Handover = Literal["queue", "full_queue", "future", "pipe", "full_pipe", "signal", "thread_end"]

RANKS: Final = {"": "ranks", "even": "even_ranks", "late": "late_ranks"}  # by what is known of the other ranks' files
_FUTURES = {"_base.py": {"result", "exception", "wait", "as_completed", "result_iterator"}, "pool.py": {"get", "next"}}
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


def in_event_loop(stack: Sequence[FrameLike]) -> bool:
    """asyncio waits there until any of its coroutines can go on: for a timer, a socket, another process. In none of
    them: who awaits what is in no stack."""
    places = [f.file.replace("\\", "/") if is_stdlib_file(f.file) else "" for f in stack]
    return any(
        at.endswith("/selectors.py") and caller.endswith("/asyncio/base_events.py") for at, caller in pairwise(places)
    )


def _by_stack(stack: Sequence[FrameLike]) -> str:
    """The kind of wait that the stack alone tells; "" for none."""
    if frames.stops_workers(stack):
        return "workers"
    if frames.in_collective(stack):
        return "collective"
    return handover(stack) or ("event_loop" if in_event_loop(stack) else "")


def _by_call(facts: Facts, top: Spot | None, call: str, cells: Mapping[Cell, int]) -> str:
    kind: str = waiting_kind(call)
    if top is not None and kind in ("sleep", "file", "lock", "socket") and source_marks.asks_database(facts, top):
        return "database"
    if top is not None and kind in ("socket", "file", "lock") and (server := frames.client_of(top.frames)):
        return "http_server" if server == "HTTP server" else server
    if top is not None and kind in ("socket", "file", "other") and any(map(_of_subprocess, top.frames)):
        return "process"  # its pipes
    if kind in ("lock", "socket") and _exchanges_gradients(facts, top, cells):
        return RANKS[facts.standing]
    return kind


def _of_subprocess(frame: FrameLike) -> bool:
    return is_stdlib_file(frame.file) and os.path.basename(frame.file) == "subprocess.py"


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
