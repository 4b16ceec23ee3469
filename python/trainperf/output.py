"""What is the same for every file that trainperf writes for its user."""

from __future__ import annotations

import os


def cannot_write(target: str, error: OSError) -> OSError:
    """The error of a file that could not be begun, with its name and what to do."""
    folder = os.path.dirname(target) or "."
    if not os.path.isdir(folder):
        return type(error)(f"{target} cannot be written: the folder {folder} does not exist: make it first")
    return type(error)(f"{target} cannot be written ({error.strerror}): name a file in a folder that can be")


def umask() -> int:
    """Which permissions a new file does not get."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
