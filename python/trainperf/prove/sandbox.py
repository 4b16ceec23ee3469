"""Folders of which a trial sees a copy that costs nothing: what it writes goes to a scratch folder, for it alone.

Overlay mounts in a mount namespace of the trial's own. Needs Linux >= 5.11 or root, and leaves nothing behind.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from trainperf.errors import TrainperfError

_NEWNS, _NEWUSER = 0x00020000, 0x10000000
_REC, _PRIVATE = 0x4000, 0x40000


def enter(folders: Sequence[str], scratch: str) -> None:
    """Of the calling process, which has one thread. Raises OSError where the system does not allow it.

    `scratch`: an empty folder outside of all of them, which takes what is written.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid, cwd = os.getuid(), os.getgid(), os.getcwd()
    _check(libc.unshare(_NEWNS if uid == 0 else _NEWNS | _NEWUSER), "a mount namespace")
    if uid != 0:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    _check(libc.mount(b"none", b"/", None, _REC | _PRIVATE, None), "a private mount")
    for number, folder in enumerate(folders):
        upper, work = (os.path.join(scratch, f"{kind}{number}") for kind in ("upper", "work"))
        options = f"lowerdir={_escape(folder)},upperdir={_escape(upper)},workdir={_escape(work)}"
        os.makedirs(upper)
        os.makedirs(work)
        if libc.mount(b"overlay", folder.encode(), b"overlay", 0, options.encode()) != 0:
            # An overlay's upper layer cannot lie on another overlay, as of a container: then it is in memory.
            _check(libc.mount(b"tmpfs", scratch.encode(), b"tmpfs", 0, b"size=50%"), "a scratch file system")
            os.makedirs(upper)
            os.makedirs(work)
            _check(libc.mount(b"overlay", folder.encode(), b"overlay", 0, options.encode()), f"an overlay of {folder}")
    os.chdir(cwd)  # into the overlay, no longer below it


def why_not() -> str:
    """Why there can be no sandbox here; "" if there can. Tried out, in a process of its own."""
    if sys.platform != "linux":
        return "overlay mounts are Linux'"
    with tempfile.TemporaryDirectory(prefix="trainperf-try-") as folder:
        shown, scratch = os.path.join(folder, "shown"), os.path.join(folder, "scratch")
        os.mkdir(shown)
        os.mkdir(scratch)
        code = (
            "import sys; from trainperf.prove import sandbox; sandbox.enter([sys.argv[1]], sys.argv[2]); "
            "open(sys.argv[1] + '/x', 'w').close()"
        )
        done = subprocess.run([sys.executable, "-c", code, shown, scratch], capture_output=True, text=True, check=False)
        if done.returncode == 0 and not os.listdir(shown):
            return ""
        return done.stderr.strip().rpartition("\n")[2] or "the overlay did not hold"


def folders_of(paths: Sequence[str], scratch: str) -> list[str]:
    """The outermost of these folders, none inside another. Raises TrainperfError for one that cannot be overlaid."""
    kept: list[str] = []
    for path in sorted({os.path.realpath(p) for p in paths}, key=lambda p: (len(p), p)):
        if any(path == k or path.startswith(k.rstrip(os.sep) + os.sep) for k in kept):
            continue
        if scratch.startswith(path.rstrip(os.sep) + os.sep) or path == os.sep:
            raise TrainperfError(
                f"a sandbox of {path} would hold its own scratch folder: start in the project's folder, or set TMPDIR"
            )
        inside = next((m for m in _mounts() if m.startswith(path.rstrip(os.sep) + os.sep)), "")
        if inside:
            raise TrainperfError(f"{inside} is mounted inside {path}, and a sandbox of that would hide it")
        kept.append(path)
    return kept


def _mounts() -> list[str]:
    try:
        with open("/proc/self/mountinfo") as file:
            return [line.split()[4].encode().decode("unicode_escape") for line in file]
    except OSError:
        return []


def _escape(path: str) -> str:
    return path.replace("\\", "\\\\").replace(",", "\\,").replace(":", "\\:")


def _check(result: int, what: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what} is not allowed here ({os.strerror(error)})")
