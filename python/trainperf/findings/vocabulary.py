"""What a cause is made of: cause_of(), the table of cpp/trainperf/event/names.h."""

from __future__ import annotations

from typing import Final

from trainperf.runfile.schema import CAUSES, MECHANISMS, PHASES

__all__ = ["CAUSES", "KEEP_NAME", "MACHINE", "MECHANISMS", "MECHANISM_OF", "ON_CPU", "OWNED", "PHASES", "cause_of"]

# These keep their name in every phase; the rest of an OWNED phase takes the phase's cause.
KEEP_NAME: Final = frozenset({"gil_wait", "stop_the_world", "object_lock", "gc", "descheduled", "throttled"})
MACHINE: Final = ("descheduled", "throttled")  # none of the loop's doing
ON_CPU: Final = ("python", "native", "gc", "copy")  # mechanisms of a thread that works
# Of a sample's state, for those that tell what the thread did.
MECHANISM_OF: Final = {"python": "python", "native": "native", "parallel": "native", "blocked": "blocked"}
OWNED: Final = {
    "fetch": "data_wait",
    "transfer": "h2d_copy",
    "checkpoint": "checkpoint",
    "validation": "validation",
    "logging": "logging",
}
_BY_MECHANISM: Final = {
    "copy": "h2d_copy",
    "blocked": "blocked_io",
    "python": "python",
}


def cause_of(phase: str, mechanism: str, *, feeds_device: bool) -> str:
    """The same table as CauseOf() in names.h; a test compares the two."""
    if mechanism in KEEP_NAME:
        return mechanism
    if phase in OWNED:
        return OWNED[phase]
    if mechanism == "native":
        return "launch" if feeds_device else "compute"
    return _BY_MECHANISM.get(mechanism, mechanism)
