"""trainperf's log. What becomes of it is the program's to set up; what fails there never reaches the training."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import Any

logger = logging.getLogger("trainperf")


class _Log:
    """As a logger, but that it never raises: a filter or a handler of the program's may."""

    def debug(self, text: str, *args: object) -> None:
        self._tell(logging.DEBUG, text, args)

    def info(self, text: str, *args: object) -> None:
        self._tell(logging.INFO, text, args)

    def warning(self, text: str, *args: object) -> None:
        self._tell(logging.WARNING, text, args)

    def error(self, text: str, *args: object, exc_info: Any = None) -> None:
        self._tell(logging.ERROR, text, args, exc_info)

    @staticmethod
    def _tell(level: int, text: str, args: tuple[object, ...], exc_info: Any = None) -> None:
        try:
            logger.log(level, text, *args, exc_info=exc_info, stacklevel=3)
        except Exception as error:
            if sys.stderr is None:  # print() would write to stdout, which is the program's
                return
            with suppress(Exception):  # where stderr or an argument fails too, nobody is left to be told
                said = text % args if args else text
                print(f"trainperf: {said} (the log failed: {type(error).__name__}: {error})", file=sys.stderr)


log = _Log()
