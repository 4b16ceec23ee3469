"""What is the same for every file that trainperf writes for its user."""

from __future__ import annotations

import os
from typing import Final

_OVERWRITE: Final = "overwrite=True"


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


def umask() -> int:
    """Which permissions a new file does not get."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
