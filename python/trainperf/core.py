"""The compiled core, and why there is none: it is built for 64-bit Linux with glibc only."""

from __future__ import annotations

import os
import sys
from typing import Any, Final

from trainperf.log import log

STALE: Final = (
    "the compiled core was built for other Python code: what needs the new one is off; rebuild it with `make dev` in a "
    "clone, or pip install --force-reinstall trainperf"
)
_STUB: Final = os.path.join(os.path.dirname(__file__), "_native.pyi")
_told: set[str] = set()


def load() -> Any:
    """trainperf._native. ImportError: with a text for people, which names the fix where there is one."""
    try:
        from trainperf import _native
    except ImportError as error:
        raise ImportError(_why(error)) from error
    if STALE not in _told and _is_older(_native.__file__) and is_stale(_native):
        _told.add(STALE)
        log.warning("%s", STALE)
    return _native


def is_stale(native: Any) -> bool:
    """Whether the module's stub is another one now than when it was built."""
    import hashlib

    try:
        with open(_STUB, "rb") as file:
            return getattr(native, "STUB", "") != hashlib.sha256(file.read()).hexdigest()
    except OSError:  # installed without it
        return False


def _is_older(built: str) -> bool:
    """Than the stub: where it is not, reading that is saved."""
    try:
        return os.stat(built).st_mtime_ns < os.stat(_STUB).st_mtime_ns
    except OSError:
        return False


def _why(error: ImportError) -> str:
    import platform  # which takes longer than all of this to import

    here = "musl" if sys.platform == "linux" and platform.libc_ver()[0] != "glibc" else sys.platform
    if here != "linux" or sys.maxsize <= 2**32:
        bits = "32-bit " if sys.maxsize <= 2**32 else ""
        return f"trainperf watches on 64-bit Linux with glibc, not on {bits}{here}; run files can be read here"
    if "cannot import name" in str(error) or error.name == "trainperf._native":
        return (
            f"the compiled core is not there for CPython {platform.python_version()}: "
            "pip install --force-reinstall trainperf, or `make dev` in a clone"
        )
    return f"the compiled core cannot be imported: {error}"
