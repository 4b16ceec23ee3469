"""How an error is said on stderr."""

from __future__ import annotations

import os


def one_line(error: BaseException) -> str:
    from trainperf.output import by_options
    from trainperf.report.text import clean

    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        what = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else "writing the output"
        text = f"{what}: {error.strerror}"
    elif isinstance(error, FileExistsError):
        text = by_options(text)
    return clean(" ".join(text.split()) or type(error).__name__)
