"""How long steps took: a histogram with its quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainperf.report.svg.base import image, num, title

_HEIGHT = 150
TALLEST = 146 / _HEIGHT  # the highest bar's share of the height


@dataclass(frozen=True, slots=True)
class Bar:
    first: float  # share of the width, 0 to 1
    end: float
    count: int
    text: str
    beyond: bool = False  # all that are longer than the axis


def histogram(bars: Sequence[Bar], quantiles: Sequence[tuple[str, float]], *, description: str) -> str:
    """`quantiles`: name and place on the width. Their labels stand beside the picture, as text."""
    most = max((bar.count for bar in bars), default=0)
    body = []
    for bar in bars:
        if not bar.count:
            continue
        height = max(1.5, TALLEST * _HEIGHT * bar.count / most)
        kind = ' class="beyond"' if bar.beyond else ""
        body.append(
            f'<rect{kind} x="{num(100 * bar.first)}%" width="{num(max(0.05, 100 * (bar.end - bar.first) - 0.12))}%" '
            f'y="{num(_HEIGHT - height, 1)}" height="{num(height, 1)}">{title(bar.text)}</rect>'
        )
    for _name, at in quantiles:
        x = f"{num(100 * at)}%"
        body.append(f'<line class="quantile" x1="{x}" x2="{x}" y1="0" y2="{_HEIGHT}"/>')
    return image("How long steps took", description, body, height=_HEIGHT, kind="histogram")
