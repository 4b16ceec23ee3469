"""Names of the system calls that a training loop blocks in, by number, and what kind of waiting they are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from trainperf.runfile import Detail

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
