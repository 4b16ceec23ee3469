"""The runs of a folder: one line each, oldest first, each compared with those of its name before it."""

from __future__ import annotations

import datetime
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from trainperf.errors import RunFileError
from trainperf.history import LAST
from trainperf.report.text import Line, clean, middle, wrap
from trainperf.run import Run

SCHEMA_VERSION: Final = 1
_BARS: Final = "▁▂▃▄▅▆▇█"
_NAME: Final = 20
_SHORTEST_NAME: Final = 8
_VERDICT: Final = 24  # its finding and cost
_FELT: Final = 0.05  # a change below it is in no colour


@dataclass(frozen=True, slots=True)
class Row:
    path: str
    name: str
    host: str
    rank: str
    started: str
    steps: int
    median_ms: float | None
    p95_ms: float | None
    verdict: str
    finding: str
    change: float | None  # of the median, against the last five of its name, host and rank; None: there is none

    @property
    def label(self) -> str:
        """Name and rank: what is one line of runs. A run without a name is called as its file."""
        if not self.name:
            return Path(self.path).name.removesuffix(".tpr")
        return f"{self.name} rank {self.rank}" if self.rank else self.name


@dataclass(frozen=True, slots=True)
class History:
    rows: tuple[Row, ...]  # oldest first
    unread: tuple[str, ...]  # files that could not be read, and why


def build(paths: Iterable[Path], at: Callable[[int], None] = lambda number: None) -> History:
    """`paths` in any order. `at` is told how many have been read."""
    from trainperf.report import model

    rows: list[Row] = []
    unread: list[str] = []
    for number, path in enumerate(paths):
        at(number)
        try:
            with Run(path) as run:
                report = model.build(run)
                rows.append(
                    Row(
                        path=str(path),
                        name=report.name,
                        host=report.host,
                        rank=run.meta.get("rank", ""),
                        started=report.started,
                        steps=report.steps,
                        median_ms=report.median_ms,
                        p95_ms=report.p95_ms,
                        verdict=report.verdict.text,
                        finding=report.verdict.finding,
                        change=None,
                    )
                )
        except RunFileError as error:
            unread.append(str(error))
    rows.sort(key=lambda row: row.started)
    return History(tuple(_with_changes(rows)), tuple(unread))


def _with_changes(rows: Sequence[Row]) -> Iterable[Row]:
    past: dict[tuple[str, str, str], list[float]] = {}
    for row in rows:
        before = past.setdefault((row.name, row.host, row.rank), [])
        change = None
        if row.name and row.median_ms is not None:
            if before:
                change = row.median_ms / statistics.median(before[-LAST:]) - 1
            before.append(row.median_ms)
        yield Row(**{**asdict(row), "change": change})


def to_dict(history: History) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "runs": [asdict(row) for row in history.rows],
        "unread": list(history.unread),
    }


def lines(history: History, *, width: int = 80) -> list[Line]:
    if not history.rows and not history.unread:
        return [[("no run files here", "")]]
    out = _table(history.rows, width) if history.rows else []
    for name in sorted({row.label for row in history.rows if row.name}):
        medians = [row.median_ms for row in history.rows if row.label == name and row.median_ms is not None]
        if len(medians) > 1:
            start = f"{middle(clean(name), 20)}  "
            shown = medians[-max(2, width - len(start) - 24) :]
            out.append([(start, "bold"), (_spark(shown), ""), (f"  {shown[0]:.4g} -> {shown[-1]:.4g} ms", "")])
    for text in history.unread:
        out += [
            [("not read: " if i == 0 else " " * 10, "yellow"), (t, "")]
            for i, t in enumerate(wrap(clean(text), width - 10, 2))
        ]
    return out


def _table(rows: Sequence[Row], width: int) -> list[Line]:
    """Columns as wide as what stands in them, none that is empty; a long name gives way to the verdict."""
    steps = _column("steps", [f"{row.steps:,}" for row in rows])
    median = _column("median", [f"{row.median_ms:.4g} ms" if row.median_ms is not None else "-" for row in rows])
    trend = _column("trend", [f"{row.change:+.0%}" if row.change is not None else "" for row in rows])
    dates = 16
    room = width - dates - 2 - len(steps[0]) - len(median[0]) - len(trend[0]) - 2
    longest = min(_NAME, max(len(clean(row.label)) for row in rows))
    names = max(_SHORTEST_NAME, min(longest, room - _VERDICT))
    left = f"{'started':<{dates}}  {'name':<{names}}"
    out: list[Line] = [[(f"{left}{steps[0]}{median[0]}{trend[0]}  verdict", "bold")]]
    for row, *cells in zip(rows, steps[1:], median[1:], trend[1:], strict=True):
        left = f"{_date(row.started):<{dates}}  {middle(clean(row.label), names):<{names}}{cells[0]}{cells[1]}"
        style = "" if row.change is None or abs(row.change) < _FELT else ("red" if row.change > 0 else "green")
        verdict = wrap(clean(row.verdict), max(10, room - names), 1)[0]
        out.append([(left, ""), (cells[2], style), (f"  {verdict}", "dim")])
    return out


def _column(head: str, cells: Sequence[str]) -> list[str]:
    """The head and the cells, right-aligned behind two spaces; all "" where no cell says anything."""
    if not any(cells):
        return [""] * (len(cells) + 1)
    width = max(map(len, [head, *cells]))
    return [f"  {cell:>{width}}" for cell in (head, *cells)]


def _spark(values: Sequence[float]) -> str:
    """Bars from the least to the most; all alike: all low."""
    low, high = min(values), max(values)
    scale = (len(_BARS) - 1) / (high - low) if high > low * 1.02 else 0.0
    return "".join(_BARS[round((value - low) * scale)] for value in values)


def _date(started: str) -> str:
    try:
        return datetime.datetime.fromisoformat(started.replace("Z", "+00:00")).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return clean(started[:16]) or "not known"
