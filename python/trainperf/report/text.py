"""Text that fits: shortening, rounding that adds up, and lines of styled pieces."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from typing import Final

_PLACE: Final = re.compile(r"[\w.<>]+ \([^() ]+:\d+\)")
_IMPORT: Final = re.compile(r"import |from \S+ import ")
# Where text may end: at a clause or a comment; then before an alternative, or how and where it is done. At other commas
# a list or a condition goes on.
_ENDS: Final = (
    re.compile(r"; |  # "),
    re.compile(r", (?=(?:or|so|but|which|on|in|under|by|from|of|with|without|before|after) )"),
)
# What says least first: modules, the system call, what a library was called with, the helper's caller, the folders.
_CHAINS: Final = (
    (re.compile(r"\b(?:\w+\.)+(\w+\.\w+ called by)"), r"\1"),
    (re.compile(r" \([a-z_0-9]+\)(?= in )"), ""),
    (re.compile(r"[\w.<>]+ called by ([\w.<>]+ \([^() ]+:\d+\))"), r"\1"),
    (re.compile(r"(\([^() ]+:\d+\)) called by [\w.<>]+ \([^() ]+:\d+\)"), r"\1"),
    (re.compile(r"\([^() ]*[/\\]([^()/\\ ]+:\d+)\)"), r"(\1)"),
)

Piece = tuple[str, str]  # text, style ("" for none)
Line = list[Piece]

INDENT: Final = 6  # "Why   "

_LONGEST_WORD: Final = 200
_LONGEST: Final = 4000

# A run file comes from elsewhere: its names must not move the cursor or recolour the terminal.
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    return _CONTROL.sub("?", text)


def length(line: Line) -> int:
    return sum(len(text) for text, _ in line)


def middle(text: str, width: int) -> str:
    """Shortened in the middle, where a path says least."""
    if len(text) <= width:
        return text
    if width <= 3:
        return text[: max(0, width)]
    tail = (width - 3) * 2 // 3
    return text[: width - 3 - tail] + "..." + text[len(text) - tail :]


def shorten_words(text: str, width: int) -> str:
    """Long words (paths) are shortened in the middle so that each fits a line."""
    return " ".join(middle(word, width) for word in text.split(" "))


def wrap(text: str, width: int, max_lines: int) -> list[str]:
    """At most `max_lines` lines of at most `width`; what does not fit ends in "..."."""
    words = shorten_words(text, width).split(" ")
    lines: list[str] = []
    current = ""
    for word in words:
        joined = f"{current} {word}" if current else word
        if len(joined) <= width:
            current = joined
            continue
        lines.append(current)
        current = word
    lines.append(current)
    if len(lines) <= max_lines:
        return lines
    kept = lines[:max_lines]
    last = kept[-1]
    if len(last) > width - 4:
        # At a word, unless there is only one.
        cut = last.rfind(" ", 0, width - 3)
        last = last[: cut if cut > 0 else width - 4]
    kept[-1] = last.rstrip(" ;:,(") + " ..."
    return kept


def block(label: str, text: str, width: int, max_lines: int, style: str = "") -> list[Line]:
    """ "Why   ..." and the lines that go with it below each other."""
    rows = wrap(clean(text), width - INDENT, max_lines)
    return [[(f"{label:<{INDENT}}" if i == 0 else " " * INDENT, "bold"), (row, style)] for i, row in enumerate(rows)]


def _bounded(text: str) -> str:
    """What is tried in many ways takes time with the square of its length, and a run's names may be of any."""
    return middle(shorten_words(text, _LONGEST_WORD), _LONGEST)


def fit_clauses(text: str, width: int, max_lines: int) -> str:
    """Whole clauses, as many as fit: what is said ends where one does, not between brackets. Else as it is."""
    text = _bounded(text)
    for marks in _ENDS:
        for mark in reversed(list(marks.finditer(text))):
            kept = text[: mark.start()]
            if kept.count("(") != kept.count(")"):
                continue
            if len(wrap(text, width, max_lines + 1)) > max_lines >= len(wrap(kept, width, max_lines + 1)):
                return kept
    return text


def fit_places(text: str, width: int, max_lines: int) -> str:
    """Shortened such that a "(train.py:41)" stays with what is said of it: the chain of functions goes first, then
    folders, then what is said after the last place, then whole clauses that name none, then the last places, then
    words."""
    text = _bounded(text)

    def fits(text: str) -> bool:
        return len(wrap(text, width, max_lines + 1)) <= max_lines

    for pattern, instead in _CHAINS:
        if fits(text):
            return text
        text = pattern.sub(instead, text)
    places = list(_PLACE.finditer(text))
    if not places or fits(text):
        return text
    if text[places[-1].end() :][:1] in (":", ";"):
        text = text[: places[-1].end()]
    clauses = text.split("; ")
    for clause in [c for c in clauses if not _PLACE.search(c)]:
        if fits("; ".join(clauses)):
            break
        clauses.remove(clause)
    text = "; ".join(clauses)
    if fits(text):
        return text
    places = list(_PLACE.finditer(text))
    for place in reversed(places[:-1]):
        if fits(text[: place.end()]):
            return text[: place.end()]
    first = places[0]
    head, tail = text[: first.start()].split(" "), text[first.start() : first.end()]
    while head and not fits(f"{' '.join(head)} ... {tail}"):
        head.pop()
    return f"{' '.join(head)} ... {tail}".strip()


def in_one_line(fix: str) -> str:
    """A fix's advice, or the first line of code that does something: no import, no header without its body."""
    rows = fix.splitlines() or [""]
    if rows[0].startswith("# "):
        return rows[0][2:].rstrip(":")
    rows = [row for row in rows if not _IMPORT.match(row)] or rows
    text = rows[0]
    for row in rows[1:]:
        if not text.endswith(":"):
            break
        text = f"{text} {row.strip()}"
    return text


def apportion(values: Sequence[float], total: float, digits: int, told: Container[int] = ()) -> list[float]:
    """The values rounded to `digits`, such that they sum to the rounded total.

    What rounding left over goes to those that were nearest to being rounded the other way; to one of `told`, which is
    said elsewhere too, only where no other is left.
    """
    unit = 10.0**digits
    scaled = [v * unit for v in values]
    rounded = [round(float(f"{v:.{digits}f}") * unit) for v in values]
    missing = round(total * unit) - sum(rounded)
    step = 1 if missing > 0 else -1
    order = sorted(range(len(values)), key=lambda i: (i in told, step * (rounded[i] - scaled[i])))
    for i in [i for i in order if rounded[i] + step >= 0][: abs(missing)]:
        rounded[i] += step
    return [r / unit for r in rounded]
