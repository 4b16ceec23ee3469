"""One step's own timeline: lanes of pieces (phases, waits, what a device did) over the same stretch of time."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from trainperf.report.svg.base import esc, image, num, title
from trainperf.report.svg.palette import Look, fill

_LANE = 26
_GAP = 6
_LETTER = 7.0  # px
_LONGEST_TEXT = 240  # of a piece: the names of kernels are long
_WIDE = 1000  # px that a lane has on a desk, more or less
_NAMED = 0.05  # share of the step from which a piece has its name, cut where the piece ends
_POINTED = 0.02  # share of the step from which a piece is told by itself; narrower ones are drawn together
_LEAST = 0.0006  # a piece this short is under half a pixel
_UNITS = 2000  # of the width that narrow pieces are drawn in: half a pixel each
_MOST_TOLD = 80  # pieces of a step that are told by themselves: the longest; all others are drawn together
_MOST_DRAWN = 2000  # strokes of a step: the widest


@dataclass(frozen=True, slots=True)
class Piece:
    start: float  # share of the step, 0 to 1
    end: float
    name: str
    look: Look
    text: str  # when pointed at


@dataclass(frozen=True, slots=True)
class Lane:
    name: str
    pieces: Sequence[Piece]


def timeline(lanes: Sequence[Lane], *, label: str, description: str) -> str:
    """Pieces too short to be seen are left out of the picture (the numbers beside it have them)."""
    wide = [p for lane in lanes for p in lane.pieces if _share(p) >= _POINTED]
    told = {id(p) for p in heapq.nlargest(_MOST_TOLD, wide, key=_share)}
    body = []
    for row, lane in enumerate(lanes):
        inside = "".join(_piece(p) for p in lane.pieces if id(p) in told)
        narrow = _narrow([p for p in lane.pieces if _share(p) >= _LEAST and id(p) not in told], len(lanes))
        place = f'y="{row * (_LANE + _GAP)}" height="{_LANE}"'
        body.append(f'<svg {place}><rect class="lane"/>{inside}{narrow}</svg>')
    height = len(lanes) * (_LANE + _GAP) - _GAP if lanes else 1
    return image(label, description, body, height=height, kind="step")


def _share(piece: Piece) -> float:
    return piece.end - piece.start


def _piece(piece: Piece) -> str:
    share = _share(piece)
    inside = ""
    if share >= _NAMED or share * _WIDE >= _LETTER * len(piece.name) + 8:
        inside = f'<text x="5" y="17" fill="{piece.look.ink}">{esc(piece.name, 60)}</text>'
        if piece.look.pattern:
            room = 8 + _LETTER * min(60, len(piece.name))
            inside = f'<rect x="2" y="4" width="{room:g}" height="18" rx="2" fill="{piece.look.colour}"/>{inside}'
    place = f'x="{num(100 * piece.start)}%" width="{num(100 * share)}%"'
    if not inside:
        return f'<rect {place} fill="{fill(piece.look)}">{title(piece.text, _LONGEST_TEXT)}</rect>'
    return f'<svg {place}>{title(piece.text, _LONGEST_TEXT)}<rect fill="{fill(piece.look)}"/>{inside}</svg>'


def _narrow(pieces: Sequence[Piece], lanes: int) -> str:
    """One path of thick strokes for each look, and one stroke for neighbours: a step may have hundreds of them."""
    looks: dict[str, list[tuple[int, int]]] = {}
    for p in sorted(pieces, key=lambda p: p.start):
        start, end = round(_UNITS * p.start), max(round(_UNITS * p.end), round(_UNITS * p.start) + 1)
        strokes = looks.setdefault(fill(p.look), [])
        if strokes and start <= strokes[-1][1]:
            start, end = strokes[-1][0], max(end, strokes.pop()[1])
        strokes.append((start, end))
    most = _MOST_DRAWN // lanes // max(1, len(looks))
    paths = ""
    for look, strokes in looks.items():
        shown = sorted(heapq.nlargest(most, strokes, key=lambda s: s[1] - s[0])) if len(strokes) > most else strokes
        paths += f'<path stroke="{look}" d="{"".join(f"M{a} 0h{b - a}" for a, b in shown)}"/>'
    box = f'viewBox="0 {-_LANE // 2} {_UNITS} {_LANE}" preserveAspectRatio="none" stroke-width="{_LANE}"'
    return f"<svg {box}>{paths}</svg>" if paths else ""
