"""How a watch reports to the user: its log handler, and its one warning."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from trainperf.errors import TrainperfWarning
from trainperf.log import logger

if TYPE_CHECKING:
    from trainperf.settings import Settings


def start_logging(settings: Settings) -> Callable[[], None] | None:
    """Only when TRAINPERF_LOG_LEVEL asks for it; else the program's own set-up of logging decides.

    Returns what undoes it.
    """
    if settings.log_level is None:
        return None
    handler = logging.StreamHandler()
    handler.setLevel(settings.log_level)
    handler.setFormatter(logging.Formatter("trainperf: %(levelname)s: %(message)s"))
    level = logger.level

    def undo() -> None:
        logger.removeHandler(handler)
        logger.setLevel(level)

    logger.addHandler(handler)
    logger.setLevel(settings.log_level)
    return undo


def warn(text: str) -> None:
    """Never raises, also where warnings are errors: the loop is over, and its result must not be lost."""
    import warnings

    try:
        warnings.warn(text, TrainperfWarning, stacklevel=5)
    except TrainperfWarning:
        print(f"trainperf: {text}", file=sys.stderr, flush=True)
