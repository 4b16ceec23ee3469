"""How the loop is handed what others make: queues, futures and pipes, as stacks show them; and who it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from trainperf.findings.frames import FrameLike, is_stdlib_file, is_the_loops

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts, Holder
    from trainperf.findings.places import Beside, Spot

Handover = Literal["queue", "process queue", "full queue", "future", "pipe", "full pipe", "signal", "thread end"]

_FUTURES = {"_base.py": {"result", "exception", "wait", "as_completed", "result_iterator"}, "pool.py": {"get", "next"}}
_PIPES: dict[str, Handover] = {  # multiprocessing.Connection: of Pipe, of a Manager's proxies
    **dict.fromkeys(("recv", "recv_bytes", "recv_bytes_into", "poll", "wait"), "pipe"),
    **dict.fromkeys(("send", "send_bytes"), "full pipe"),
}
_THREADING: dict[str, Handover] = {"wait": "signal", "wait_for": "signal", "join": "thread end"}


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


def awaited(beside: Sequence[Beside], *, timed: bool) -> list[Beside]:
    """Those who ran as waits ended, which looks the same where a timer ends them."""
    return [] if timed else [b for b in beside if b.awaited]


def handover(stack: Sequence[FrameLike]) -> Handover | None:
    """What a thread waits for there, or does: the innermost queue or future of its stack; else a pipe, the end of a
    thread, or what a Condition, an Event, a Barrier or a Semaphore waits for: these sleep in a lock that nobody holds.
    """
    other: Handover | None = None
    for f in stack:
        if not is_stdlib_file(f.file):
            continue
        parts = f.file.replace("\\", "/").rsplit("/", 2)
        function = f.function.rsplit(".", 1)[-1]
        if parts[-1] in ("queue.py", "queues.py"):
            if function in ("get", "_get"):
                return "process queue" if parts[-2] == "multiprocessing" else "queue"
            if function in ("put", "_put"):
                return "full queue"
        elif parts[-2] in ("futures", "multiprocessing") and function in _FUTURES.get(parts[-1], ()):
            return "future"
        elif parts[-2:] == ["multiprocessing", "connection.py"]:
            other = other or _PIPES.get(function)
        elif parts[-1] == "threading.py":
            other = other or _THREADING.get(function)
    return other


def in_event_loop(stack: Sequence[FrameLike]) -> bool:
    """asyncio waits there until any of its coroutines can go on: for a timer, a socket, another process. In none of
    them: who awaits what is in no stack."""
    places = [f.file.replace("\\", "/") if is_stdlib_file(f.file) else "" for f in stack]
    return any(
        at.endswith("/selectors.py") and caller.endswith("/asyncio/base_events.py") for at, caller in pairwise(places)
    )


def feeds_the_loop(facts: Facts, holder: Holder) -> bool:
    """Whether a thread puts into a queue, and the loop takes from one. A DataLoader's own, which its pin-memory thread
    fills, is none of these.

    By samples in any state: who holds the GIL is in the way in the queue as well.
    """
    stacks = (facts.run.stack(d.stack) for d in facts.samples())
    if holder.thread is None or not any(handover(s) == "queue" and is_the_loops(s) for s in stacks):
        return False
    return any(
        d.thread is not None and d.thread.id == holder.thread.id and handover(facts.run.stack(d.stack)) == "full queue"
        for kind in ("gil_wait", "hold", "beside")
        for d in facts.run.detail_totals(kind)
    )


def told_beside(facts: Facts, b: Beside) -> str:
    """Where a thread is while the training thread sleeps, and whether that waits for it."""
    said = f"meanwhile {b.name} is in {facts.label(b.spot)} for {b.share:.0%} of it"
    if b.awaited:
        return said
    if b.still:
        return f"{said}; not waited for: it did not run when waits ended"
    return f"{said}; whether it is waited for is not known"
