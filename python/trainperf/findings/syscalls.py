"""Names of the system calls that a training loop blocks in, by number, and what kind of waiting they are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from trainperf.runfile import Detail

Waiting = Literal["lock", "sleep", "file", "socket", "process", "other"]

# Only calls that block; from the kernel's asm/unistd.h of each architecture.
_X86_64 = {
    0: "read", 1: "write", 2: "open", 7: "poll", 17: "pread64", 18: "pwrite64", 19: "readv", 20: "writev", 23: "select",
    26: "msync", 34: "pause", 35: "nanosleep", 42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg",
    47: "recvmsg", 61: "wait4", 72: "fcntl", 73: "flock", 74: "fsync", 75: "fdatasync", 82: "rename", 87: "unlink",
    202: "futex",
    230: "clock_nanosleep", 232: "epoll_wait", 247: "waitid", 257: "openat", 263: "unlinkat", 264: "renameat",
    270: "pselect6", 271: "ppoll", 281: "epoll_pwait", 288: "accept4", 295: "preadv", 296: "pwritev",
    316: "renameat2", 449: "futex_waitv",
}  # fmt: skip
_AARCH64 = {
    22: "epoll_pwait", 25: "fcntl", 32: "flock", 35: "unlinkat", 38: "renameat", 56: "openat", 63: "read", 64: "write",
    65: "readv",
    66: "writev", 67: "pread64", 68: "pwrite64", 69: "preadv", 70: "pwritev", 72: "pselect6", 73: "ppoll",
    82: "fsync", 83: "fdatasync", 95: "waitid", 98: "futex", 101: "nanosleep", 115: "clock_nanosleep",
    202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom", 211: "sendmsg", 212: "recvmsg", 227: "msync",
    242: "accept4", 260: "wait4", 276: "renameat2", 449: "futex_waitv",
}  # fmt: skip
_TABLES = {"x86_64": _X86_64, "amd64": _X86_64, "aarch64": _AARCH64, "arm64": _AARCH64}

_NAMES_BY_KIND: dict[Waiting, str] = {
    "lock": "futex futex_waitv flock fcntl",
    "sleep": "nanosleep clock_nanosleep pause",
    "file": "read pread64 readv preadv write pwrite64 writev pwritev open openat fsync fdatasync msync "
    "rename renameat renameat2 unlink unlinkat",
    "socket": "recvfrom recvmsg sendto sendmsg connect accept accept4 poll ppoll select pselect6 epoll_wait "
    "epoll_pwait",
    "process": "wait4 waitid",
}
_WRITES = {
    *("write", "pwrite64", "writev", "pwritev", "fsync", "fdatasync", "msync"),
    *("rename", "renameat", "renameat2", "unlink", "unlinkat"),
}
_KINDS: dict[str, Waiting] = {name: kind for kind, names in _NAMES_BY_KIND.items() for name in names.split()}


def syscall_name(number: int, machine: str) -> str:
    """ "futex" for 202 on x86_64; "system call 999" when it is not in the table or the machine is not known."""
    return _TABLES.get(machine.lower(), {}).get(number, f"system call {number}" if number >= 0 else "a system call")


def waiting_kind(name: str) -> Waiting:
    return _KINDS.get(name, "other")


def opens(name: str) -> bool:
    """Of calls for a file: whether it may be for either."""
    return name in ("open", "openat")


def writes(name: str) -> bool:
    """Of calls for a file: whether it is for what is written, and not to read."""
    return name in _WRITES


def call_of(samples: Iterable[Detail], machine: str) -> str:
    """The system call in which most of the waits among them went; "" where there is none, or none was known: the kernel
    reads a page, or does not tell."""
    calls: dict[int, int] = {}
    for d in samples:
        if d.state == "blocked":
            calls[d.syscall] = calls.get(d.syscall, 0) + d.ns
    most = max(calls, key=lambda c: calls[c], default=-1)
    return syscall_name(most, machine) if most >= 0 else ""
