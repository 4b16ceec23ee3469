"""A flame graph with its root at the top: the wider a frame, the more of the time; below it, what it called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainperf.report.svg.base import esc, image, num, title
from trainperf.report.svg.palette import PHASE_LOOKS, fill

_ROW = 20
_NAMED = 0.012


@dataclass(frozen=True, slots=True)
class FlameFrame:
    depth: int
    start: float  # share of the whole, 0 to 1
    share: float
    name: str
    text: str  # when pointed at
    kind: str  # "root", "phase", "user", "library", "state"


def flame(frames: Sequence[FlameFrame], *, label: str, description: str) -> str:
    depth = max((frame.depth for frame in frames), default=0)
    return image(label, description, [_frame(frame) for frame in frames], height=(depth + 1) * _ROW, kind="flame")


def _frame(frame: FlameFrame) -> str:
    look = PHASE_LOOKS.get(frame.name) if frame.kind == "phase" else None
    rect = f'fill="{fill(look)}"' if look else f'class="{frame.kind[0]}"'
    ink = ""
    if look:
        ink = f' style="fill:{look.ink}"'
    inside = ""
    if frame.share >= _NAMED:
        if look and look.pattern:
            inside = f'<rect x="1" y="1" width="{7 + 7 * len(frame.name)}" height="{_ROW - 3}" fill="{look.colour}"/>'
        inside += f'<text x="4" y="14"{ink}>{esc(frame.name, 60)}</text>'
    return (
        f'<svg x="{num(100 * frame.start)}%" y="{frame.depth * _ROW}" width="{num(100 * frame.share)}%" '
        f'height="{_ROW - 1}">{title(frame.text)}<rect width="100%" height="{_ROW - 1}" {rect}/>'
        f'<rect class="edge" width="1" height="{_ROW}"/>{inside}</svg>'
    )
