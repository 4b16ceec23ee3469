"""Rows of cells without axes: how much of a second each of many things worked, over the run."""

from __future__ import annotations

from itertools import groupby

import numpy as np

from trainperf.report.svg.base import image, num
from trainperf.runfile.records import Float64Array

_ROWS, _COLUMNS, _LEVELS = 64, 120, 8
_HIGHEST, _LOWEST = 12, 3  # a row, in pixels
_TALL = 192


def heat(shares: Float64Array, *, label: str, description: str) -> str:
    """`shares`: a row each, 0 to 1. Of many rows or columns each is the mean of some."""
    for axis, most in enumerate((_ROWS, _COLUMNS)):
        if shares.shape[axis] > most:
            parts = np.array_split(shares, most, axis=axis)
            shares = np.stack([part.mean(axis=axis) for part in parts], axis=axis)
    rows, columns = shares.shape
    height = min(_HIGHEST, max(_LOWEST, _TALL // rows))
    cells: dict[int, list[str]] = {}
    for row, levels in enumerate(np.rint(shares * _LEVELS).astype(int).tolist()):
        at = 0
        for level, run in groupby(levels):
            wide = len(list(run))
            cells.setdefault(level, []).append(f"M{at} {row}h{wide}v1h-{wide}z")
            at += wide
    body = (f'<path fill-opacity="{num(n / _LEVELS)}" d="{"".join(of)}"/>' for n, of in sorted(cells.items()) if n)
    return image(label, description, body, height=rows * height, view_box=f"0 0 {columns} {rows}", kind="heat")
