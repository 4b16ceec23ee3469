"""The compiled core, and why there is none: it is built for 64-bit Linux with glibc only."""

from __future__ import annotations

import sys
from typing import Any


def load() -> Any:
    """trainperf._native. ImportError: with a text for people, which names the fix where there is one."""
    try:
        from trainperf import _native
    except ImportError as error:
        raise ImportError(_why(error)) from error
    return _native


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
