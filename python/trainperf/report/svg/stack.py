"""The step-time timeline: what each step's time was made of, one layer per cause, the run from left to right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainperf.report.svg.base import esc, image, num, ticks, title
from trainperf.report.svg.palette import Look, fill

FloatArray = npt.NDArray[np.float64]

_HEIGHT = 240  # units; the picture is stretched to its figure
_WIDTH = 1000
_LABEL = 0.17  # of the width, where there is little; narrower windows show one label only
_TURNS = 0.8  # of the width: labels of what is further right lie to its left
_THIN = 'vector-effect="non-scaling-stroke"'  # a line keeps its width when the picture is stretched


@dataclass(frozen=True, slots=True)
class Level:
    """The run's usual step from bin `first` to before bin `end`."""

    first: float
    end: float
    ms: float


@dataclass(frozen=True, slots=True)
class Mark:
    """A step that lies above what the chart shows, or is worth a look."""

    bin: float
    ms: float
    text: str
    target: str = ""  # id of the element that tells more

    def extent(self, bins: int) -> tuple[float, float]:
        """Where its words lie, in shares of the width: to its right, but near the right edge to its left."""
        at = self.bin / bins
        return (at - _LABEL, at) if at > _TURNS else (at, at + _LABEL)


@dataclass(frozen=True, slots=True)
class Chart:
    """The picture, and what stands beside it as text."""

    svg: str
    ticks: tuple[tuple[float, str], ...]  # share of the height from the bottom, label


def timeline(
    layers: Sequence[tuple[str, Look, FloatArray]],
    *,
    top_ms: float,
    highest: FloatArray | None = None,
    levels: Sequence[Level] = (),
    marks: Sequence[Mark] = (),
    hover: Sequence[tuple[int, int, str]] = (),
    label: str = "Step time by cause",
    description: str = "",
) -> Chart:
    """`layers`: from the bottom up, each the ms of every bin. `highest`: the slowest step of each bin, drawn as a line.

    `hover`: stretches of bins (first, end, text) that tell their numbers when pointed at.
    """
    bins = len(layers[0][2]) if layers else 0
    if not bins or top_ms <= 0:
        return Chart(image(label, "no steps", (), height=_HEIGHT, kind="timeline"), ())
    unit = max(1, round(_WIDTH / bins))
    width = bins * unit
    scale = _HEIGHT / top_ms
    tick_values = ticks(top_ms)
    lines = "".join(f"M0 {num(_HEIGHT - t * scale, 1)}h{width}" for t in tick_values[1:])
    body = [f'<path class="grid" {_THIN} d="{lines}"/>']
    # Each layer reaches down to the floor, and the next lower one is painted over it: half the numbers of outlines.
    tops = np.cumsum([values for _, _, values in layers], axis=0)
    paths = []
    for (_name, look, _), top in zip(layers, tops, strict=True):
        paths.append(f'<path fill="{fill(look)}" d="{_steps(top * scale, unit)}"/>')
    body += reversed(paths)
    if highest is not None:
        body.append(f'<path class="highest" {_THIN} d="{_steps(highest * scale, unit, line=True)}"/>')
    for level in levels:
        y = num(max(0.0, _HEIGHT - level.ms * scale), 1)
        body.append(f'<path class="level" {_THIN} d="M{num(level.first * unit, 1)} {y}H{num(level.end * unit, 1)}"/>')
    pointed = [
        f'<rect x="{first * unit}" width="{(end - first) * unit}">{title(text)}</rect>' for first, end, text in hover
    ]
    body.append(f'<g class="hover">{"".join(pointed)}</g>')
    inner = image(label, description, body, height=_HEIGHT, view_box=f"0 0 {width} {_HEIGHT}", kind="timeline")
    return Chart(
        inner + _marks(marks, bins, top_ms), tuple((min(1.0, t / top_ms), f"{num(t, 2)}") for t in tick_values)
    )


def _steps(heights: FloatArray, unit: int, *, line: bool = False) -> str:
    """A staircase: a stair per bin, equal neighbours in one."""
    y = np.clip(np.rint(_HEIGHT - heights), 0, _HEIGHT).astype(int)
    starts = np.concatenate([[0], np.flatnonzero(np.diff(y)) + 1])
    lengths = np.diff(np.concatenate([starts, [len(y)]])) * unit
    levels = y[starts]
    rises = np.diff(levels)
    parts = [f"M0 {levels[0]}h{lengths[0]}" if line else f"M0 {_HEIGHT}V{levels[0]}h{lengths[0]}"]
    parts += [f"v{rise}h{length}" for rise, length in zip(rises.tolist(), lengths[1:].tolist(), strict=True)]
    return "".join(parts) if line else "".join(parts) + f"V{_HEIGHT}z"


def _marks(marks: Sequence[Mark], bins: int, top_ms: float) -> str:
    """Labels over the picture, as HTML: text in a stretched picture would be stretched too."""
    out = []
    for mark in marks:
        left = num(100 * mark.bin / bins)
        side = " right" if mark.bin / bins > _TURNS else ""
        over = " over" if mark.ms > top_ms else ""
        bottom = num(100 * min(1.0, mark.ms / top_ms), 1)
        text = esc(mark.text, 80)
        inner = f'<a href="#{esc(mark.target)}">{text}</a>' if mark.target else text
        out.append(f'<span class="mark{side}{over}" style="left:{left}%;bottom:{bottom}%">{inner}</span>')
    return "".join(out)
