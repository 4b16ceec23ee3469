"""What is made to be sent (reports, exports) without the machine's name and with ~ for home folders."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

# Not within a longer path or a URL; the folder's own name ends where a path's part, or the text, does.
_BEFORE: Final = r"(?<![\w.~/-])"
_ANY_HOME: Final = re.compile(rf"{_BEFORE}/(?:home|Users)/[^/\s\"'<>&:;,)\\]+")
_LONGEST_HOME: Final = 200
_LEFT_OUT: Final = frozenset(("host", "home", "pid"))  # of meta


def homeless(text: str, metas: Iterable[Mapping[str, str]] = ()) -> str:
    """The text with ~ in place of home folders: ours, those of the runs with these `meta`, all in /home or /Users."""
    homes = [os.path.expanduser("~"), *(meta.get("home", "") for meta in metas)]
    for home in {home.rstrip("/") for home in homes}:
        if home.startswith("/") and len(home) <= _LONGEST_HOME:
            text = re.sub(rf"{_BEFORE}{re.escape(home)}(?![\w.-])", "~", text)
    return _ANY_HOME.sub("~", text)


def sent_meta(meta: Mapping[str, str]) -> dict[str, str]:
    """A run's `meta` for a file that is sent."""
    return {key: homeless(value, [meta]) for key, value in meta.items() if key not in _LEFT_OUT}


def hostless(document: dict[str, Any]) -> dict[str, Any]:
    """`show --json` for a file that is sent: machines have numbers in place of names, where there are several."""
    ranks = document.get("ranks", ())
    hosts = list(dict.fromkeys(rank["host"] for rank in ranks))
    numbered = [rank | {"host": host_number(rank["host"], hosts)} for rank in ranks]
    return document | {"run": document["run"] | {"host": ""}} | ({"ranks": numbered} if ranks else {})


def host_number(host: str, hosts: list[str]) -> str:
    """ "host 2" of several, else ""."""
    return f"host {hosts.index(host) + 1}" if len(hosts) > 1 else ""
