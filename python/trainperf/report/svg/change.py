"""A difference and its interval of confidence, on an axis that all rows of a table share; zero is in its middle."""

from __future__ import annotations

from trainperf.report.svg.base import image, num

_HEIGHT = 22


def change(
    difference: float, low: float, high: float, *, reach: float, label: str, description: str, told: bool
) -> str:
    """`reach`: what the ends of the axis stand for. `told`: more than noise."""

    def at(value: float) -> str:
        share = 0.5 + 0.5 * max(-1.0, min(1.0, value / reach)) if reach > 0 else 0.5
        return f"{num(2 + 96 * share, 2)}%"

    kind = "noise" if not told else ("more" if difference > 0 else "less")
    middle = _HEIGHT / 2
    body = [
        f'<line class="zero" x1="50%" x2="50%" y1="0" y2="{_HEIGHT}"/>',
        f'<line class="{kind}" x1="{at(low)}" x2="{at(high)}" y1="{middle:g}" y2="{middle:g}"/>',
        *(
            f'<line class="{kind} end" x1="{at(x)}" x2="{at(x)}" y1="{middle - 4:g}" y2="{middle + 4:g}"/>'
            for x in (low, high)
        ),
        f'<circle class="{kind}" cx="{at(difference)}" cy="{middle:g}" r="4"/>',
    ]
    return image(label, description, body, height=_HEIGHT, kind="change")
