"""How findings write numbers, and texts with gaps that params are put into.

A number that a rule hands to a message has one of the types below, which says how it is written: `{cost}` of Ns(8.1e6)
is "8.1 ms". After a colon Count takes its noun, in both forms where the plural is no mere s, and all take Python's own
formats: `{n:thread}` is "3 threads", `{n:launch|launches}` "1 launch", `{ratio:.1f}` "1.5".

A text is a template of str.format: `{device} idled {each} a step`.

- `[[; called by {place}]]` is left out when a param in it is None, or not there.
- `[[early? at the run's start]]` is there when the param `early` is true, `[[!early? ...]]` when it is not.
- A line of evidence is such a section as a whole: `early? the run's second half has little of it`.
- A line of evidence `{spots.share} of it in {spots.place}` stands for one for each row of the param `spots`.
"""

from __future__ import annotations

import dataclasses
import math
import re
import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainperf.findings.model import Param, Params, Said


def plural(n: int, word: str, ending: str = "s") -> str:
    return f"{n:,} {word}{ending if n != 1 else ''}"


_LONG_NS = 1e10  # milliseconds would have five digits


def ms(ns: float) -> str:
    """ "8.1 ms", "0.12 ms", "240 ms", "1,240 ms", "24.3 s"."""
    if ns >= _LONG_NS:
        return f"{ns / 1e9:,.1f} s"
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
        if max(self, default=0.0) >= _LONG_NS:
            return ", ".join(f"{ns / 1e9:,.1f}" for ns in self) + " s"
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


_SECTION = re.compile(r"\[\[(.*?)\]\]", re.DOTALL)
_FLAG = re.compile(r"(!?)([a-z_.]+)\?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """The words of one variant of a finding: a template each."""

    title: str
    why: str
    fix: str = ""  # to paste: Python, or a comment
    will_not_help: str = ""
    evidence: tuple[str, ...] = ()
    brief: str = ""  # instead of the title where the verdict is about another finding

    def but(self, **texts: Any) -> Message:
        """A variant that differs in these texts."""
        return dataclasses.replace(self, **texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Why a rule is unsure, where the verdict speaks of it."""

    why: str
    whose: str  # where the time is, of which it is not known whose it is: "Python"
    unknown: str = ""  # what is not known of it; "": samples are missing, and a longer run has more


Messages = Mapping[str, Mapping[str, Message]]  # by a rule's id and the variant
Doubts = Mapping[str, Doubt | str]  # by the variant of what is Unsure; a text: the reason alone


def fill(template: str, params: Params, texts: Mapping[str, str]) -> str:
    """The text. `texts`: of what params have Said. KeyError: the template names a param that is not there."""
    kept = _SECTION.sub(lambda match: _kept(match[1], params), template)
    return _Formatter(texts).vformat(kept, (), params)


def lines(templates: tuple[str, ...], params: Params, texts: Mapping[str, str]) -> tuple[str, ...]:
    """Lines of evidence: those of which all params are there, and one for each row of those that repeat."""
    found = []
    for template in templates:
        rows = next((name.partition(".")[0] for name in _names(template) if "." in name), "")
        for row in _rows(rows, params) if rows else ({},):
            values = {**params, **row}
            found.append(fill(_kept(template, values), values, texts).strip())
    return tuple(line for line in found if line)


def _kept(section: str, params: Params) -> str:
    flag = _FLAG.match(section)
    if flag is not None:
        section = section[flag.end() :]
        if bool(params.get(flag[2])) == bool(flag[1]):
            return ""
    return section if all(params.get(name) is not None for name in _names(section)) else ""


def _names(template: str) -> list[str]:
    """Of the params that it cannot do without."""
    return [name for _, name, _, _ in string.Formatter().parse(_SECTION.sub("", template)) if name]


def _rows(name: str, params: Params) -> list[dict[str, Param]]:
    rows = params.get(name) or ()
    assert isinstance(rows, tuple)
    return [{f"{name}.{key}": value for key, value in row.items()} for row in rows if isinstance(row, Mapping)]


class _Formatter(string.Formatter):
    """Takes a name with its dots as one, those of rows; and puts what is Said in words, which may name params around
    it."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def get_field(self, field_name: str, args: Any, kwargs: Mapping[str, Any]) -> tuple[Any, str]:
        value = kwargs[field_name]
        if value is None:
            raise KeyError(field_name)
        if isinstance(value, Said):
            value = self._text(value, kwargs)
        elif isinstance(value, tuple) and value and isinstance(value[0], Said):
            value = _Row(self._text(said, kwargs) for said in value)
        return value, field_name

    def _text(self, said: Said, around: Mapping[str, Any]) -> str:
        return fill(self._texts[said.key], {**around, **said.params}, self._texts)


class _Row(tuple[str, ...]):
    """Texts, with what its format says between them; else a semicolon."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return (spec or "; ").join(self)
