"""A bar that is cut into parts: the mean step by cause, a device by what it did, a rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainperf.report.svg.base import esc, image, num, title
from trainperf.report.svg.palette import Look, fill

_LETTER = 7.3  # px; names that would not fit are left to the legend
_SEEN = 0.4  # px; what is narrower is not drawn


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    look: Look
    value: float
    text: str  # when pointed at


def bar(
    parts: Sequence[Part], *, whole: float, label: str, description: str = "", height: int = 34, wide: int = 1000
) -> str:
    """As long as its parts are of `whole`; `wide`: how many pixels it has on a desk, more or less."""
    body, x = [], 0.0
    for part in parts:
        share = part.value / whole if whole > 0 else 0.0
        if share * wide < _SEEN:
            x += share
            continue
        inside = ""
        if share * wide >= _LETTER * len(part.name) + 10:
            inside = f'<text x="6" y="{height / 2 + 4:g}" fill="{part.look.ink}">{esc(part.name, 40)}</text>'
            if part.look.pattern:  # letters on a pattern are hard to read
                room = 9 + _LETTER * min(40, len(part.name))
                place = f'x="2" y="{height / 2 - 9:g}" width="{room:g}" height="18" rx="2"'
                inside = f'<rect {place} fill="{part.look.colour}"/>{inside}'
        place = f'x="{num(100 * x)}%" width="{num(100 * share)}%"'
        if inside:
            body.append(f'<svg {place}>{title(part.text)}<rect fill="{fill(part.look)}"/>{inside}</svg>')
        else:
            body.append(f'<rect {place} fill="{fill(part.look)}">{title(part.text)}</rect>')
        x += share
    return image(label, description, body, height=height, kind="bar")
