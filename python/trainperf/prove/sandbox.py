"""A view of the machine's files for one trial: what it writes, by whatever means, goes to a scratch folder.

Overlay mounts in a mount namespace of the trial's own, which its subprocesses share; copies cost only what is changed.
Needs Linux >= 5.11 or root, and leaves nothing behind.

    folders = folders_of(named, all_that_is_written())
    failed = try_out(folders, real, scratch)   # in a process of its own
    enter(folders, real, scratch)              # in the trial
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import stat
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from trainperf.errors import TrainperfError

_NEWNS, _NEWUSER = 0x00020000, 0x10000000
_BIND, _REC, _PRIVATE = 0x1000, 0x4000, 0x40000

# Of the system: not what a training writes, and where sockets and devices must be the real ones.
_SYSTEM = ("/proc", "/sys", "/dev", "/run", "/usr", "/etc", "/boot", "/lost+found")
_DEEPEST = 3  # levels of folders of other users that are looked into for the user's own: /data/project/me
_MOST = 20_000  # entries of such folders that are read


def enter(folders: Sequence[str], real: Iterable[str], scratch: Sequence[str]) -> dict[str, str]:
    """Of the calling process, which has one thread. Why folders have none: {} where all went well.

    `real`: what lies below one of them and is to stay as it is. `scratch`: empty folders, which take what is written in
    the folders that they do not lie in. Raises OSError where the system allows none of it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid, cwd = os.getuid(), os.getgid(), os.getcwd()
    _check(libc.unshare(_NEWNS if uid == 0 else _NEWNS | _NEWUSER), "a mount namespace")
    if uid != 0:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    _check(libc.mount(b"none", b"/", None, _REC | _PRIVATE, None), "a private mount")
    kept = {path: fd for path in _below(folders, [*real, *_sockets()]) if (fd := _handle(path)) is not None}
    failed: dict[str, str] = {}
    for number, folder in enumerate(folders):
        try:
            _overlay(libc, folder, number, scratch)
        except FileNotFoundError:  # it has been removed since it was found
            continue
        except OSError as error:
            failed[folder] = str(error.strerror)
    for path, fd in kept.items():
        source = f"/proc/self/fd/{fd}".encode()
        if libc.mount(source, path.encode(), None, _BIND | _REC, None) != 0 and os.path.isdir(path):
            failed[path] = os.strerror(ctypes.get_errno())
        os.close(fd)
    os.chdir(cwd)  # into the overlay, no longer below it
    return failed


def _overlay(libc: ctypes.CDLL, folder: str, number: int, scratch: Sequence[str]) -> None:
    root = os.getuid() == 0
    # Without these no folder that was there can be renamed (as another user than root it cannot), or removed and made.
    more = "redirect_dir=on" if root else "userxattr"
    found = os.stat(folder)
    # An upper layer can lie neither in the lower one, nor on another overlay, as of a container: then in memory.
    for place in (*(s for s in scratch if not _inside(s, folder)), None):
        place = place or _memory(libc, scratch[0])  # noqa: PLW2901
        upper, work = (os.path.join(place, f"{kind}{number}") for kind in ("upper", "work"))
        os.mkdir(upper)
        os.mkdir(work)
        os.chmod(upper, stat.S_IMODE(found.st_mode))
        if root:
            os.chown(upper, found.st_uid, found.st_gid)
        options = f"lowerdir={_escape(folder)},upperdir={_escape(upper)},workdir={_escape(work)},{more}"
        if libc.mount(b"overlay", folder.encode(), b"overlay", 0, options.encode()) == 0:
            return
        error = ctypes.get_errno()
        for made in (upper, work):
            os.rmdir(made)
    raise OSError(error, f"an overlay of {folder} is not allowed here ({os.strerror(error)})")


def _memory(libc: ctypes.CDLL, scratch: str) -> str:
    place = os.path.join(scratch, "memory")
    if not os.path.isdir(place):
        os.mkdir(place)
        _check(libc.mount(b"tmpfs", place.encode(), b"tmpfs", 0, b"size=50%"), "a scratch file system")
    return place


def _handle(path: str) -> int | None:
    with contextlib.suppress(OSError):
        return os.open(path, os.O_PATH)
    return None


def why_not() -> str:
    """Why there can be no sandbox here; "" if there can."""
    with tempfile.TemporaryDirectory(prefix="trainperf-try-") as folder:
        shown, scratch = os.path.join(folder, "shown"), os.path.join(folder, "scratch")
        os.mkdir(shown)
        os.mkdir(scratch)
        try:
            return next(iter(try_out([shown], [], [scratch]).values()), "")
        except TrainperfError as error:
            return str(error)


def try_out(folders: Sequence[str], real: Sequence[str], scratch: Sequence[str]) -> Mapping[str, str]:
    """What enter() gives, in a process of its own, where overlays that do not hold what is written count as failed.

    Raises TrainperfError where there can be none.
    """
    if sys.platform != "linux":
        raise TrainperfError("overlay mounts are Linux'")
    code = "import json, sys; from trainperf.prove import sandbox; sandbox.tell(*json.loads(sys.argv[1]))"
    command = [sys.executable, "-c", code, json.dumps([folders, real, scratch])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    for place in scratch:
        clear(place)
    if done.returncode != 0:
        raise TrainperfError(done.stderr.strip().rpartition("\n")[2] or "the overlay did not hold")
    failed: dict[str, str] = json.loads(done.stdout)
    return failed


def tell(folders: Sequence[str], real: Sequence[str], scratch: Sequence[str]) -> None:
    """What try_out() has a process of its own do."""
    before = _devices(folders)
    failed = enter(folders, real, scratch)
    after = _devices(before)
    held = {folder: "the overlay did not hold" for folder in after if after[folder] == before[folder]}
    print(json.dumps(held | failed))


def _devices(folders: Iterable[str]) -> dict[str, int]:
    """Of those that there are: others' temporary folders go at any time."""
    found = {}
    for folder in folders:
        with contextlib.suppress(OSError):
            found[folder] = os.stat(folder).st_dev
    return found


def remove(scratch: str) -> None:
    """As far as that goes."""
    clear(scratch)
    with contextlib.suppress(OSError):
        os.rmdir(scratch)


def clear(scratch: str) -> None:
    """Removes what is in it. An overlay's own folder there may not be read, not even by its user, as rmtree() does."""
    for folder, folders, _ in os.walk(scratch):
        for name in folders:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                with contextlib.suppress(OSError):
                    os.chmod(path, stat.S_IRWXU)
    for folder, folders, files in os.walk(scratch, topdown=False):
        for name in files:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(folder, name))
        for name in folders:
            path = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                os.unlink(path) if os.path.islink(path) else os.rmdir(path)


def all_that_is_written(without: Sequence[str] = ()) -> list[str]:
    """The outermost folders of this machine that an overlay can be put on: what the user owns, but the system's.

    A folder in which another file system is mounted has none of its own; those inside of it do. Nor has a folder of
    another user's, as a copy would have to be that user's too: nothing below it could be written.
    """
    points = _mounts()
    uid = os.getuid()
    found: list[str] = []
    queue, read = deque([os.sep]), 0
    while queue:
        folder = queue.popleft()
        if folder in _SYSTEM or folder in without or points.get(folder) == "autofs":
            continue
        inside = any(_inside(point, folder) and point != folder for point in points)
        with contextlib.suppress(OSError):
            mine = uid in (0, os.lstat(folder).st_uid)
            if mine and not inside and folder != os.sep and os.access(folder, os.W_OK):
                found.append(folder)
            elif inside or (folder.count(os.sep) < _DEEPEST and read < _MOST):
                with os.scandir(folder) as entries:
                    names = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries]
                read += len(names)
                queue.extend(path for path, is_folder in names if is_folder)
    return found


def folders_of(named: Sequence[str], others: Sequence[str] = ()) -> list[str]:
    """The outermost of these folders, none inside another. Raises TrainperfError for a named one that can have none."""
    points = _mounts()
    for path in {os.path.realpath(p) for p in named}:
        if path == os.sep:
            raise TrainperfError(f"a sandbox cannot be of all of {path}: start in the project's folder")
        within = next((m for m in points if m != path and _inside(m, path)), "")
        if within:
            raise TrainperfError(f"{within} is mounted inside {path}, and a sandbox of that would hide it")
    kept: list[str] = []
    for path in sorted({os.path.realpath(p) for p in (*named, *others)}, key=lambda p: (len(p), p)):
        if not any(_inside(path, k) for k in kept):
            kept.append(path)
    return kept


def around(path: str, folders: Iterable[str]) -> str:
    """The one of these folders that holds it, or is it; "" if there is none."""
    path = os.path.realpath(path)
    return next((folder for folder in folders if _inside(path, os.path.realpath(folder))), "")


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _below(folders: Sequence[str], paths: Iterable[str]) -> list[str]:
    """Outermost first, as one may lie in another."""
    return sorted({p for p in map(os.path.realpath, paths) if any(_inside(p, f) for f in folders)}, key=len)


def _sockets() -> list[str]:
    """Nobody listens on the copy of a socket: these stay the real ones."""
    with contextlib.suppress(OSError), open("/proc/net/unix") as file:
        return [path for line in file if (path := line.rstrip("\n").split(None, 7)[-1]).startswith(os.sep)]
    return []


def _mounts() -> dict[str, str]:
    """The file system at each mount point."""
    found = {}
    with contextlib.suppress(OSError), open("/proc/self/mountinfo") as file:
        for line in file:
            mount, _, system = line.partition(" - ")
            found[mount.split()[4].encode().decode("unicode_escape")] = system.split()[0]
    return found


def _escape(path: str) -> str:
    return path.replace("\\", "\\\\").replace(",", "\\,").replace(":", "\\:")


def _check(result: int, what: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what} is not allowed here ({os.strerror(error)})")
