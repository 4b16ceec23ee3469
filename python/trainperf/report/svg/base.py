"""What all charts share: numbers in few characters, text that is safe, and elements."""

from __future__ import annotations

import html
import itertools
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from trainperf.report.text import clean, middle

_LONGEST: Final = 160  # a name of 10,000 characters would fill the page, and names come up again and again
_LONGEST_IN_JSON: Final = 1000
_MOST_IN_JSON: Final = 128  # entries of a list or table


def num(value: float, digits: int = 2) -> str:
    """ "12.5", "3", "-.4" is written "-0.4": few characters, since a chart has thousands of numbers."""
    text = f"{value:.{digits}f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def short(text: str, longest: int = _LONGEST) -> str:
    """Without control characters, and cut in the middle."""
    return middle(clean(text), longest)


def esc(text: str, longest: int = _LONGEST) -> str:
    """For between tags and in attributes."""
    return html.escape(short(text, longest), quote=True)


def bounded(value: Any) -> Any:
    """What JSON is made of, with long texts cut in the middle and of long lists and tables the first entries."""
    if isinstance(value, str):
        return middle(value, _LONGEST_IN_JSON)
    if isinstance(value, Mapping):
        shown = {bounded(key): bounded(value[key]) for key in itertools.islice(value, _MOST_IN_JSON)}
        return shown | ({f"and {len(value) - len(shown):,} more": None} if len(value) > len(shown) else {})
    if isinstance(value, (list, tuple)):
        rest = len(value) - _MOST_IN_JSON
        return [bounded(entry) for entry in value[:_MOST_IN_JSON]] + ([f"and {rest:,} more"] if rest > 0 else [])
    return value


def script_safe(value: Any) -> str:
    """JSON that stays within its <script>, whatever names are in it; bounded, as a page is sent and kept."""
    value = bounded(value)
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def title(text: str, longest: int = 4 * _LONGEST) -> str:
    """What a pointer that rests on the element shows."""
    return f"<title>{esc(text, longest)}</title>"


def image(label: str, description: str, body: Iterable[str], *, height: int, view_box: str = "", kind: str = "") -> str:
    """An SVG that is one picture to a screen reader, with a name and a description; as wide as its figure.

    With a `view_box` the picture is stretched to the width.
    """
    stretched = f' viewBox="{view_box}" preserveAspectRatio="none"' if view_box else ""
    words = title(label, _LONGEST) + (f"<desc>{esc(description, 600)}</desc>" if description else "")
    return (
        f'<svg class="chart{" " + kind if kind else ""}" role="img" width="100%" height="{height}"{stretched}>'
        f"{words}{''.join(body)}</svg>"
    )


def ticks(top: float, wanted: int = 4, *, low: float = 0.0) -> list[float]:
    """Round numbers from 0 (or `low`) to at most `top`, about `wanted` of them."""
    if not top > low:
        return [low]
    raw = (top - low) / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    out, i = [], math.ceil(low / step - 1e-9)
    while i * step <= top * 1.0001:
        out.append(i * step)
        i += 1
    return out


def duration(ms: float) -> str:
    """ "8.1 ms", "8.0 ms", "0.12 ms", "240 ms", "1.24 s", "3.5 min": as in the words of findings."""
    if ms >= 120_000:
        return f"{ms / 60_000:.1f} min"
    if ms >= 1000:
        return f"{ms / 1000:.2f} s"
    if ms >= 100:
        return f"{ms:.0f} ms"
    if ms == 0:
        return "0 ms"
    if ms >= 0.1:
        return f"{ms:.1f} ms" if ms >= 1 else f"{ms:.2f} ms"
    return f"{ms * 1000:.1f} µs"
