"""The words of findings about free-threaded Pythons."""

from __future__ import annotations

from typing import Final

from trainperf.findings.messages.catalogue import Doubts, Message, Messages

_COLLECT_RARELY: Final = (
    "gc.collect(); gc.freeze(); gc.disable()  # once, after setup: live objects are not scanned again\n"
    "if step % 500 == 0: gc.collect()  # on {thread}, between two steps"
)
_STOPS: Final = Message(
    title="{stopper} stops the world, {thread} included",
    why="{stopper} stops all threads for garbage collections[[, {at}]]",
    evidence=(
        "{thread} is stopped for {each} of each step's {step}",
        "{pauses:pause} of {pause} on average",
        "{stoppers.name} caused {stoppers.share} of it[[, {stoppers.at}]]",
    ),
    fix=f"{_COLLECT_RARELY}[[\n# gc.disable() stops only automatic collections: if {{stopper}} calls gc.collect(), "
    "remove that call]]",
    will_not_help="more threads: each must be stopped before a pause begins",
)
_LOCK: Final = Message(
    title="{thread} waits for the per-object lock of a shared object",
    why="threads change the same dict, list or other object[[ {at}]], one at a time",
    evidence=("{waits:wait} of {wait} on average", "{holders.name} held it for {holders.share} of the wait"),
    fix="# give each thread its own object, and merge them once at the end:\nresults[thread_index].append(value)",
    will_not_help="a threading.Lock around it: one more lock to wait for; more threads",
)

MESSAGES: Final[Messages] = {
    "TP203": {
        "collects": _STOPS,
        "traces": _STOPS.but(
            why="{stopper} stops all threads to set a tracer[[, {at}]]",
            fix="# set tracers and profile functions once, before {training}: each call stops every thread",
        ),
        "unread": _STOPS.but(
            title="another thread stops the world, {thread} included",
            why="that thread, and why it stops the others, could not be read",
            fix=f"# most often these are garbage collections; if so:\n{_COLLECT_RARELY}",
        ),
    },
    "TP204": {
        "held": _LOCK,
        "unread": _LOCK.but(
            evidence=(*_LOCK.evidence, "the holder is not known: CPython records it for some locks only")
        ),
    },
}

TEXTS: Final[dict[str, str]] = {}

UNSURE: Final[Doubts] = {}
