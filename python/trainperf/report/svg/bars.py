"""A bar that is cut into parts: the mean step by cause, a device by what it did, a rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainperf.report.svg.base import esc, image, num, title
from trainperf.report.svg.palette import Look, fill

_LETTER = 7.3  # px; names that would not fit are left to the legend
_PHONE = 340  # px, that a bar has on a phone; names that do not fit there are marked for its style to hide
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
        needs = _LETTER * len(part.name) + 10
        if share * wide >= needs:
            inside = f'<text x="6" y="{height / 2 + 4:g}" fill="{part.look.ink}">{esc(part.name, 40)}</text>'
            if part.look.pattern:  # letters on a pattern are hard to read
                room = 9 + _LETTER * min(40, len(part.name))
                place = f'x="2" y="{height / 2 - 9:g}" width="{room:g}" height="18" rx="2"'
                inside = f'<rect {place} fill="{part.look.colour}"/>{inside}'
            if share * min(wide, _PHONE) < needs:
                inside = f'<g class="desk">{inside}</g>'
        place = f'x="{num(100 * x)}%" width="{num(100 * share)}%"'
        if inside:
            body.append(f'<svg {place}>{title(part.text)}<rect fill="{fill(part.look)}"/>{inside}</svg>')
        else:
            body.append(f'<rect {place} fill="{fill(part.look)}">{title(part.text)}</rect>')
        x += share
    return image(label, description, body, height=height, kind="bar")
