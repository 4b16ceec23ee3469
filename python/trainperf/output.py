"""What is the same for every file that trainperf writes for its user: which are refused, and how one is replaced.

with replacing("a.html", overwrite=True, inputs=["a.tpr"]) as made:
    Path(made).write_text(page)
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from typing import Final

from trainperf.errors import TrainperfError

_OVERWRITE: Final = "overwrite=True"
_COMPANIONS: Final = ("-wal", "-shm", "-journal")  # what SQLite keeps next to a run file
_ACCESS_LIST: Final = "system.posix_acl_access"
_KINDS: Final = (
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)


def cannot_write(target: str, error: OSError) -> OSError:
    """The error of a file that could not be begun, with its name and what to do."""
    folder = os.path.dirname(target) or "."
    if not os.path.isdir(folder):
        return type(error)(f"{target} cannot be written: the folder {folder} does not exist: make it first")
    return type(error)(f"{target} cannot be written ({error.strerror}): name a file in a folder that can be")


def exists_already(target: str) -> FileExistsError:
    """The error of a file or folder that is not to be replaced. The core words it so too (run/run_path.cc)."""
    return FileExistsError(f"{target} exists already: give another name, or {_OVERWRITE} to replace it")


def by_options(text: str) -> str:
    """The words of exists_already() where -f replaces a file: on a command line."""
    return text.replace(f"or {_OVERWRITE} to", "or -f to")


def is_folder(target: str, example: str) -> IsADirectoryError:
    """The error of a folder where a file is to be written, such as `example`."""
    return IsADirectoryError(f"{target} is a folder: name a file in it, such as {os.path.join(target, example)}")


def check_target(
    target: str, *, overwrite: bool, inputs: Iterable[str | os.PathLike[str]] = (), example: str = "report.html"
) -> None:
    """Raises OSError or TrainperfError when `target` is no file that may be made or replaced.

    Replaced are regular files alone, `overwrite` or not: a renamed file would take the place of /dev/null, too. What
    is read to make the file (`inputs`), and what SQLite keeps next to that, is never replaced.
    """
    try:
        found = os.stat(target)
    except OSError:  # a link to nowhere, too
        found = None
    if found is not None and stat.S_ISDIR(found.st_mode):
        raise is_folder(target, example)
    if found is not None and not stat.S_ISREG(found.st_mode):
        kind = next((name for is_kind, name in _KINDS if is_kind(found.st_mode)), "not a regular file")
        raise TrainperfError(f"{target} is {kind}, and only regular files are replaced: give another name")
    _check_inputs(target, inputs)
    if os.path.lexists(target) and not overwrite:
        raise exists_already(target)


def _check_inputs(target: str, inputs: Iterable[str | os.PathLike[str]]) -> None:
    for name in inputs:
        real, other = os.path.realpath(target), os.path.realpath(name)  # also of what does not exist
        if _same_file(real, other):
            raise TrainperfError(f"{target} is the input itself: give another name")
        # A new run file removes the logs that lie next to it, so neither may be a log of the other.
        if any(_same_file(real, other + s) or _same_file(real + s, other) for s in _COMPANIONS):
            raise TrainperfError(f"{target} belongs to the input {os.fspath(name)}: give another name")


def _same_file(a: str, b: str) -> bool:
    try:
        return a == b or os.path.samefile(a, b)
    except OSError:
        return False


@contextlib.contextmanager
def replacing(
    target: str,
    *,
    overwrite: bool,
    inputs: Iterable[str | os.PathLike[str]] = (),
    suffix: str = "",
    example: str = "report.html",
) -> Iterator[str]:
    """The path of a file to write in place of `target`: it takes its place when all went well, and goes when not.

    Raises as check_target() does, and OSError when nothing can be made in the folder. A link to a file stays, and the
    file gets the new content. A file that is replaced keeps its permissions, and its owner where that is allowed.
    """
    check_target(target, overwrite=overwrite, inputs=inputs, example=example)
    place = os.path.realpath(target) if os.path.exists(target) else target
    try:
        handle, made = tempfile.mkstemp(prefix=".trainperf-", suffix=suffix, dir=os.path.dirname(place) or ".")
    except OSError as error:
        raise cannot_write(target, error) from error
    os.close(handle)
    try:
        yield made
        _take_access(made, place)
        if overwrite:
            os.replace(made, place)
        else:
            _claim(made, place)
    except OSError as error:
        if error.filename is None and error.strerror:  # a full disk: it names no file
            raise cannot_write(target, error) from error
        raise
    finally:
        with contextlib.suppress(OSError):
            os.unlink(made)


def _take_access(made: str, place: str) -> None:
    """Owner, permissions and access list of the file that is replaced; of a new one what the umask leaves."""
    try:
        found = os.stat(place)
    except OSError:
        os.chmod(made, 0o666 & ~umask())
        return
    with contextlib.suppress(OSError):  # only root may give a file away
        os.chown(made, found.st_uid, found.st_gid)
    os.chmod(made, stat.S_IMODE(found.st_mode) & 0o777)
    if hasattr(os, "getxattr"):
        with contextlib.suppress(OSError):  # most have none
            os.setxattr(made, _ACCESS_LIST, os.getxattr(place, _ACCESS_LIST))


def _claim(made: str, place: str) -> None:
    """As a rename, but never over a file that has come meanwhile."""
    try:
        os.link(made, place)
    except FileExistsError:
        raise exists_already(place) from None
    except OSError:  # a file system without links
        os.replace(made, place)


def run_file_target(path: str, *, overwrite: bool, inputs: Iterable[str | os.PathLike[str]] = ()) -> str:
    """Where the core makes a run file: through a link to a file, which stays. All else the core refuses itself.

    Raises TrainperfError when it would replace an input.
    """
    if path:
        _check_inputs(path, inputs)
    return os.path.realpath(path) if overwrite and os.path.isfile(path) else path


def umask() -> int:
    """Which permissions a new file does not get."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
