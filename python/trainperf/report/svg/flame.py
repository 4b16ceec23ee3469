"""A flame graph with its root at the top: the wider a frame, the more of the time; below it, what it called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainperf.report.svg.base import esc, image, num, script_safe, short, title
from trainperf.report.svg.palette import PHASE_LOOKS, fill

_ROW = 20
_NAMED = 0.018  # share of the width from which a frame has room for a part of its name


@dataclass(frozen=True, slots=True)
class FlameFrame:
    depth: int
    start: float  # share of the whole, 0 to 1
    share: float
    name: str
    text: str  # when pointed at
    kind: str  # "root", "phase", "user", "library", "state"


@dataclass(frozen=True, slots=True)
class Caller:
    """A frame of the graph turned around: at depth 1 a function by its own time, below it who called it."""

    depth: int
    name: str  # with its place
    share: float  # of the whole, 0 to 1
    samples: int
    kind: str


def flame(frames: Sequence[FlameFrame], *, label: str, description: str) -> str:
    depth = max((frame.depth for frame in frames), default=0)
    return image(label, description, [_frame(frame) for frame in frames], height=(depth + 1) * _ROW, kind="flame")


def _frame(frame: FlameFrame) -> str:
    look = PHASE_LOOKS.get(frame.name) if frame.kind == "phase" else None
    place = f'x="{num(100 * frame.start)}%" y="{frame.depth * _ROW}" width="{num(100 * frame.share)}%"'
    colour = f'fill="{fill(look)}"' if look else f'class="{frame.kind[0]}"'
    if frame.share < _NAMED:
        return f"<rect {place} {colour}>{title(frame.text)}</rect>"
    inside, ink = "", ""
    if look:
        ink = f' style="fill:{look.ink}"'
        if look.pattern:
            inside = f'<rect x="1" y="1" width="{7 + 7 * len(frame.name)}" height="{_ROW - 3}" fill="{look.colour}"/>'
    return f"<svg {place}>{title(frame.text)}<rect {colour}/>{inside}<text{ink}>{esc(frame.name, 60)}</text></svg>"


def callers(frames: Sequence[Caller]) -> str:
    """The numbers of a second graph, which templates/flame.js draws in the place of the first when it is asked to.

    `frames`: each after the one above it. Rows are depth, name, hundredths of a percent, samples; cut off, so that
    those below a frame are together no wider than it.
    """
    names: dict[tuple[str, str], int] = {}
    rows = [
        (f.depth, names.setdefault((f.kind[0], short(f.name)), len(names)), int(10_000 * f.share), f.samples)
        for f in frames
    ]
    data = {"names": [name for _, name in names], "kinds": [kind for kind, _ in names], "rows": rows}
    return f'<script type="application/json">{script_safe(data)}</script>'
