"""Texts with gaps, and how params are put into them.

A text is a template of str.format: `{device} idled {each} a step`. How a param is written its type says (see text.py).

- `[[; called by {place}]]` is left out when a param in it is None, or not there.
- `[[early? at the run's start]]` is there when the param `early` is true, `[[!early? ...]]` when it is not.
- A line of evidence is such a section as a whole: `early? the run's second half has little of it`.
- A line of evidence `{spots.share} of it in {spots.place}` stands for one for each row of the param `spots`.
"""

from __future__ import annotations

import dataclasses
import re
import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainperf.findings.model import Param, Params, Said

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
