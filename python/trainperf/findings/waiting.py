"""What a thread that sleeps waits for, in words, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainperf.findings.handovers import handover
from trainperf.findings.syscalls import call_of, waiting_kind
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.runfile import Detail

WORDS = {
    "lock": "waits for a lock",
    "queue": "waits for a queue",
    "process queue": "waits for a queue from another process",
    "signal": "waits for another thread's signal",
    "timed signal": "waits for a signal or a timeout",
    "thread end": "waits for a thread to end",
    "full queue": "waits for room in a queue",
    "future": "waits for a future",
    "pipe": "waits for a pipe from another process",
    "full pipe": "waits for room in a pipe to another process",
    "sleep": "sleeps",
    "file": "waits for a file",
    "socket": "waits for a socket",
    "HTTP server": "waits for an HTTP server",
    "database": "waits for a database",
    "event loop": "waits in asyncio's event loop",
    "process": "waits for a child process",
    "workers": "waits for a DataLoader's workers to stop",
    "collective": "waits for a collective (communication)",
    "ranks": "waits in backward for all ranks' gradients (all-reduce)",
    "even ranks": "waits in backward for the other ranks",
    "late ranks": "waits in backward for the other ranks",
    "other": "is blocked",
}

FIXES = {
    "lock": (
        "# hold the lock for less: copy what you need under it, work outside of it",
        "more workers, a larger batch: it is not computing",
    ),
    "queue": (
        "",  # as pools.advice says
        "a larger queue: it is empty; a larger batch, a faster GPU: the producer sets the pace",
    ),
    "process queue": (
        "",
        "a larger queue: it is empty; a larger batch, a faster GPU: the producer sets the pace",
    ),
    "signal": (
        "# make what the other thread does before its signal faster, or ask for it earlier: a step ahead",
        "a larger batch, a faster GPU: the other thread sets the pace; a lock that is held for less: none is held",
    ),
    "timed signal": (
        "# else make what comes before the signal faster, or ask for it earlier: a step ahead",
        "a larger batch, a faster GPU: the loop is asleep; a lock that is held for less: none is held",
    ),
    "thread end": (
        "# join it, or leave the `with` of its pool, a step later or after the loop: it goes on meanwhile\n"
        "# if it computes, that needs a free CPU",
        "a larger batch, a faster GPU: the other thread sets the pace; a lock that is held for less: none is held",
    ),
    "full queue": (
        "# make what takes from it faster, or run several of those",
        "a larger queue: it fills up again; a faster GPU: what takes from it sets the pace",
    ),
    "future": (
        "",
        "a larger batch, a faster GPU: the pool sets the pace",
    ),
    "pipe": (
        "",
        "a larger batch, a faster GPU: the process at the other end sets the pace",
    ),
    "full pipe": (
        "# make the process that reads from it faster, or send it less",
        "a faster GPU: the process at the other end sets the pace",
    ),
    "sleep": ("# remove the sleep, or wait in another thread", "anything that makes the step itself faster"),
    "file": (
        "# read it once and keep it, or ahead in a DataLoader worker",
        "a faster GPU: the loop waits for storage",
    ),
    "opened file": (
        "# if it is there to be read: read it once and keep it, or ahead in a DataLoader worker\n"
        "# if it is written anew, which empties it first: less often, or from a thread",
        "a faster GPU: the loop waits for storage",
    ),
    "written file": (
        "# write or print less often, or from a thread: it waits for storage, or for who reads the pipe",
        "a faster GPU: the loop does not compute",
    ),
    "socket": (
        "# send from a background thread with a queue; wait only at the end",
        "a faster GPU: the loop waits for the network",
    ),
    "HTTP server": (
        "# send from a background thread with a queue, or several steps' data in one request",
        "a faster GPU: the loop waits for the server's reply",
    ),
    "database": (
        "# write many rows in one statement and one transaction, or from a background thread with a queue",
        "a faster GPU: the loop waits for the database",
    ),
    "event loop": (
        "# fetch ahead, by an event loop in a thread of its own (loop.run_forever): submit before the step\n"
        "future = asyncio.run_coroutine_threadsafe(fetch(), loop)  # and future.result() after it",
        "a faster GPU: the event loop waits; asyncio.create_task alone: no task goes on while a step runs",
    ),
    "process": (
        "# run it beside training (subprocess.Popen, looked at later) or less often",
        "a faster GPU: the loop waits for a child process",
    ),
    "workers": (
        "DataLoader(..., persistent_workers=True)  # made once, and kept: its workers go on",
        "more workers: each of them is to stop; a faster GPU: the loop waits for processes to end",
    ),
    "collective": (
        "# exchange less often (accumulate gradients over N steps), in 16 bits (tensor.bfloat16()), or all tensors in\n"
        "# one call (torch._utils._flatten_dense_tensors); with async_op=True computation goes on until wait()",
        "a faster GPU: the loop waits for an exchange between processes",
    ),
    "ranks": (
        "# if the ranks are even, exchange less:",
        "anything on this rank, if another one is late",
    ),
    "even ranks": (
        "# exchange less: no rank is late on average; or even out the batches, if each rank is late by turns",
        "looking for one rank that is always late: there is none",
    ),
    "late ranks": (
        "# the others wait for this rank longer still: make what it does itself faster\n"
        "# if the exchange itself takes that long, exchange less:",
        "looking for a rank that is later: this one has the most work of its own",
    ),
    "other": ("# move the call out of the loop, or into a thread", "a faster GPU: the loop is asleep"),
}

LATE_RANK = "# one rank's file does not show whether a rank is late: trainperf show FOLDER, with all ranks' files"
_ASK_EARLIER = "# make what it waits for faster, or ask for it a step earlier"


@dataclass(frozen=True, slots=True)
class ForOthers:
    """A wait for another thread or process."""

    words: str  # "waits for room in a queue"
    share: float  # of what was asked of
    meanwhile: str  # "uploader is in send (train.py:9)"; "" where it is not known, or several
    who: str  # "uploader", or ""
    fix: str
    will_not_help: str


def for_others(facts: Facts, seen: Sequence[Detail], phases: Sequence[str]) -> ForOthers | None:
    """Of samples of the training thread in these phases, in any state. None where most of them are in no such wait, or
    end by a timeout."""
    by_kind: dict[str, list[Detail]] = {}
    for d in seen:
        if d.state == "blocked":
            by_kind.setdefault(handover(facts.run.stack(d.stack)) or "", []).append(d)
    kind, mine = max(by_kind.items(), key=lambda item: sum(d.ns for d in item[1]), default=("", []))
    ns, asleep = sum(d.ns for d in mine), facts.samples(phases=phases, states=["blocked"])
    share = ns / max(1, sum(d.ns for d in seen))
    spots = facts.spots(mine, by_line=True)
    if share < limit("half_share") or not spots or facts.timed(mine, spots[0], line=True):
        return None
    threads = []
    if ns >= limit("most_share") * sum(d.ns for d in asleep):  # else they may be beside what else sleeps
        threads = [(b.name, "is", b.spot) for b in facts.beside(phases) if b.awaited]
        if not threads and kind == "thread end":
            threads = [(who, "are", spot) for who, spot in facts.passing(phases)]
    who = meanwhile = ""
    if len(threads) == 1:  # of several it is not known who is waited for
        who, verb, spot = threads[0]
        meanwhile = f"{who} {verb} in {facts.label(spot)}"
    if not kind:  # a lock; or threads of a library's, unless it is known who has it
        if not who or waiting_kind(call_of(mine, facts.machine)) != "lock":
            return None
        kind = "lock"
    fix, will_not_help = FIXES[kind]
    wont = f"a thread: it waits for others already; {will_not_help}"
    return ForOthers(WORDS[kind], share, meanwhile, who, fix or _ASK_EARLIER, wont)
