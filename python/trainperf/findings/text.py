"""How findings write numbers.

A number that a rule hands to a message has one of the types below, which says how it is written: `{cost}` of Ns(8.1e6)
is "8.1 ms". After a colon Count takes its noun, in both forms where the plural is no mere s, and all take Python's own
formats: `{n:thread}` is "3 threads", `{n:launch|launches}` "1 launch", `{ratio:.1f}` "1.5".
"""

from __future__ import annotations

import math
import re


def plural(n: int, word: str, ending: str = "s") -> str:
    return f"{n:,} {word}{ending if n != 1 else ''}"


def ms(ns: float) -> str:
    """ "8.1 ms", "0.12 ms", "240 ms", "1,240 ms"."""
    value = ns / 1e6
    if value >= 100:
        return f"{value:,.0f} ms"
    return f"{value:.1f} ms" if value >= 1 else f"{value:.2f} ms"


def size(n: float) -> str:
    """ "12.4 MB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000 or unit == "GB":
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:.1f} GB"


_PYTHONS = re.compile(r"[,.\d]*[%defg]?$")  # formats of numbers, as no noun is


class _Written:
    """str() of it is as a message writes it."""

    __slots__ = ()

    def __str__(self) -> str:
        return format(self)


class Ns(_Written, float):
    """A duration in nanoseconds: "8.1 ms"; with an s for its format "4.2 s", from a second on."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        if spec == "s":
            return f"{float(self) / 1e9:,.1f} s" if self >= 1e9 else ms(float(self))
        return ms(float(self)) if not spec else format(float(self), spec)


class Seconds(_Written, float):
    """A time that may be long: "90 s", "3 minutes", "5 hours", "4 days"."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        steps = ((120, 1, "s"), (7200, 60, "minutes"), (172800, 3600, "hours"), (math.inf, 86400, "days"))
        unit, name = next((unit, name) for end, unit, name in steps if self < end)
        return f"{float(self) / unit:.0f} {name}"


class Times(tuple[float, ...]):
    """Durations in nanoseconds, with one unit for all: "3.3, 8.9, 14.1 ms"."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return ", ".join(part.removesuffix(" ms") for part in map(ms, self)) + " ms"


class Share(_Written, float):
    """0 .. 1: "37%"."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return format(float(self), spec or ".0%")


class Count(_Written, int):
    """ "1,240", "1 thread", "3 threads"."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        if _PYTHONS.match(spec):
            return format(int(self), spec or ",")
        one, _, many = spec.partition("|")
        return f"{int(self):,} {one if self == 1 else many or one + 's'}"


class Number(_Written, float):
    """A rate or a ratio: "2.5"."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return format(float(self), spec or ".3g")


class Bytes(_Written, float):
    """ "12.4 MB"."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return size(float(self)) if not spec else format(float(self), spec)


class Names(tuple[str, ...]):
    """ "a, b and c"; with a comma for its format "a, b, c"."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        if spec == "," or len(self) < 2:
            return ", ".join(self)
        return f"{', '.join(self[:-1])} and {self[-1]}"
