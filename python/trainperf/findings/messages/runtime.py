"""The words of findings about free-threaded Pythons."""

from __future__ import annotations

from typing import Final

from trainperf.findings.messages.catalogue import Doubts, Message, Messages

_STOPS: Final = Message(
    title="{stopper} stops all threads, {thread} too",
    why="{stopper} stops all threads for garbage collections[[, {at}]]",
    evidence=(
        "{pauses:pause} of {pause} on average",
        "{stoppers.name} asked for {stoppers.share} of it[[, {stoppers.at}]]",
    ),
    fix="gc.collect(); gc.freeze(); gc.disable()  # once, when all is built: what is alive is walked no more\n"
    "if step % 500 == 0: gc.collect()  # on the training thread, between two steps",
    will_not_help="more threads: each has to be stopped before the work can begin",
)
_LOCK: Final = Message(
    title="{thread} waits for the lock of an object that other threads use",
    why="threads change the same dict, list or other object[[ {at}]], one at a time",
    evidence=("{waits:wait} of {wait} on average", "{holders.name} held it for {holders.share} of the wait"),
    fix="# give each thread an object of its own, and put them together once:\nresults[thread_index].append(value)",
    will_not_help="a lock of your own around it: that is one more to wait for; more threads",
)

MESSAGES: Final[Messages] = {
    "TP203": {
        "collects": _STOPS,
        "traces": _STOPS.but(
            why="{stopper} stops all threads to set a tracer[[, {at}]]",
            fix="# set tracers and profile functions once, before training begins: each call stops every thread",
        ),
        "unread": _STOPS.but(title="another thread stops all threads, {thread} too", why="who it is could not be read"),
    },
    "TP204": {
        "held": _LOCK,
        "unread": _LOCK.but(
            evidence=(*_LOCK.evidence, "who held it is not known: Python notes it for some locks only")
        ),
    },
}

TEXTS: Final[dict[str, str]] = {}

UNSURE: Final[Doubts] = {}
