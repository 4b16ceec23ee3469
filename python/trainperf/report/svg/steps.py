"""One step's own timeline: lanes of pieces (phases, waits, what a device did) over the same stretch of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainperf.report.svg.base import esc, image, num, title
from trainperf.report.svg.palette import Look, fill

_LANE = 26
_GAP = 6
_LETTER = 7.0  # px
_WIDE = 1000  # px that a lane has on a desk, more or less
_NAMED = 0.05  # share of the step from which a piece has its name, cut where the piece ends
_POINTED = 0.02  # share of the step from which a piece is told by itself; narrower ones are drawn together
_LEAST = 0.0006  # a piece this short is under half a pixel


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
    body = []
    for row, lane in enumerate(lanes):
        y = row * (_LANE + _GAP)
        body.append(f'<rect class="lane" y="{y}" width="100%" height="{_LANE}"/>')
        body += [_piece(piece, y) for piece in lane.pieces if piece.end - piece.start >= _POINTED]
        body.append(_narrow([p for p in lane.pieces if _LEAST <= p.end - p.start < _POINTED], y))
    height = len(lanes) * (_LANE + _GAP) - _GAP if lanes else 1
    return image(label, description, body, height=height, kind="step")


def _piece(piece: Piece, y: int) -> str:
    share = piece.end - piece.start
    inside = ""
    if share >= _NAMED or share * _WIDE >= _LETTER * len(piece.name) + 8:
        inside = f'<text x="5" y="17" fill="{piece.look.ink}">{esc(piece.name, 60)}</text>'
        if piece.look.pattern:
            room = 8 + _LETTER * min(60, len(piece.name))
            inside = f'<rect x="2" y="4" width="{room:g}" height="18" rx="2" fill="{piece.look.colour}"/>{inside}'
    place = f'x="{num(100 * piece.start)}%" y="{y}" width="{num(100 * share)}%" height="{_LANE}"'
    if not inside:
        return f'<rect class="e" {place} fill="{fill(piece.look)}">{title(piece.text)}</rect>'
    return (
        f"<svg {place}>{title(piece.text)}"
        f'<rect class="e" width="100%" height="{_LANE}" fill="{fill(piece.look)}"/>{inside}</svg>'
    )


def _narrow(pieces: Sequence[Piece], y: int) -> str:
    """One path of thick strokes for each look: a step may have hundreds of them."""
    looks: dict[str, list[str]] = {}
    for p in pieces:
        x, width = round(10_000 * p.start), max(1, round(10_000 * (p.end - p.start)))
        looks.setdefault(fill(p.look), []).append(f"M{x} {_LANE // 2}h{width}")
    paths = "".join(f'<path stroke="{f}" d="{"".join(d)}"/>' for f, d in looks.items())
    box = f'viewBox="0 0 10000 {_LANE}" preserveAspectRatio="none" stroke-width="{_LANE}"'
    return f'<svg y="{y}" width="100%" height="{_LANE}" {box}>{paths}</svg>' if paths else ""
