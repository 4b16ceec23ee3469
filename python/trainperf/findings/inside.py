"""What other processes of the run do, by samples of their main threads: in which line, and whether they wait there."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from trainperf.findings.text import Share
from trainperf.findings.thresholds import limit
from trainperf.findings.waits import syscall_name, waiting_kind

if TYPE_CHECKING:
    from trainperf.runfile import Frame

CPU: Final = "CPU"
WAITING: Final = "waiting"  # for what is not known
_RUNNING: Final = frozenset({"python", "native", "unknown"})
# What a wait is for, by kind of system call.
_WAITS: Final = {
    "file": "waiting for a file",
    "socket": "waiting for the network",
    "sleep": "sleeping",
    "lock": "waiting for a lock",
    "process": "waiting for a process",
    "page": "waiting for a page of memory",
    "gil": "waiting for the GIL",
    "other": WAITING,
}


@dataclass(slots=True)
class Line:
    """A line of the user's, and what it calls there."""

    frame: Frame  # of the user's; of a library where the stack has none
    calls: str  # "PIL.Image.open"; "": its own code, or a function without Python frames
    states: Counter[str] = field(default_factory=Counter)  # samples: CPU, or as in _WAITS

    @property
    def count(self) -> int:
        return sum(self.states.values())

    def spent(self) -> str:
        """ "waiting for a file 60%, CPU 40%"."""
        shares = ((state, n / self.count) for state, n in self.states.most_common())
        return ", ".join(f"{state} {Share(share)}" for state, share in shares if share >= limit("rare_warn_share"))


def state_of(state: str, syscall: int, machine: str) -> str:
    """Of a sample: CPU, or what it waits for."""
    if state in _RUNNING:
        return CPU
    if state == "gil_wait":
        return _WAITS["gil"]
    return _WAITS["page" if syscall < 0 else waiting_kind(syscall_name(syscall, machine))]
