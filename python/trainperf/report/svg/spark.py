"""A line without axes, as high as a word: how a number went over the run."""

from __future__ import annotations

from collections.abc import Sequence

from trainperf.report.svg.base import image, num

_POINTS = 120
_HEIGHT = 28


def spark(values: Sequence[float], *, top: float, label: str, description: str) -> str:
    """From 0 at the bottom to `top`; long series are thinned to the highest of each stretch."""
    if len(values) > _POINTS:
        size = len(values) / _POINTS
        values = [max(values[int(i * size) : max(int(i * size) + 1, int((i + 1) * size))]) for i in range(_POINTS)]
    if len(values) < 2 or top <= 0:
        return ""
    last = len(values) - 1
    heights = [num(_HEIGHT - 2 - (_HEIGHT - 4) * min(1.0, max(0.0, v / top)), 1) for v in values]
    # A point between two of its own height says nothing.
    turns = [i for i, y in enumerate(heights) if i in (0, last) or not heights[i - 1] == y == heights[i + 1]]
    points = " ".join(f"{i} {heights[i]}" for i in turns)
    body = (f'<path class="line" vector-effect="non-scaling-stroke" d="M{points}"/>',)
    return image(label, description, body, height=_HEIGHT, view_box=f"0 0 {last} {_HEIGHT}", kind="spark")
