"""A comparison as one HTML file, in the style of the report: no script, no network.

page = render(comparison)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from markupsafe import Markup

from trainperf.comparison.model import Change, Comparison
from trainperf.comparison.sample import MACHINE
from trainperf.findings.thresholds import limit
from trainperf.report import compare_json
from trainperf.report.html import environment
from trainperf.report.sharing import homeless
from trainperf.report.svg import bars, palette
from trainperf.report.svg.base import duration, num, script_safe
from trainperf.report.svg.change import change

_MOST_RANKS: Final = 40
_HOSTS: Final = re.compile(r"(not the same host): .*")  # a page is made to be sent


def render(comparison: Comparison) -> str:
    """The page as text; written by report.html.write()."""
    c = replace(comparison, notes=tuple(_HOSTS.sub(r"\1", note) for note in comparison.notes))
    rows, machine, others = _rows(c)
    least = limit("show_share") * max(c.total.before, c.total.after) if c.total else 0.0
    devices = [*c.devices[:2], *(x for x in c.devices[2:] if max(x.before, x.after) >= least)]
    reach = max(
        (
            max(abs(x.low), abs(x.high))
            for x in (c.wall, c.total, *rows, *machine, *devices, *(r.total for r in c.ranks))
            if x
        ),
        default=0.0,
    )
    page: str = (
        environment()
        .get_template("compare.html")
        .render(
            c=c,
            rows=rows,
            machine=machine,
            others=others,
            devices=devices,
            definitions=Markup(palette.definitions()),
            data=Markup(script_safe(compare_json.to_dict(c))),
            bars=[(words, side, _bar(c, words, value)) for words, side, value in _sides(c)] if c.total else [],
            legend=[(x.name, palette.look(x.name)) for x in sorted((*rows, *machine), key=_order)],
            picture=lambda x: _picture(x, reach),
            ranks=sorted(sorted(c.ranks, key=lambda r: -abs(r.total.difference))[:_MOST_RANKS], key=lambda r: r.rank),
            signed=lambda ms: f"{ms:+.2f}" if abs(ms) < 100 else f"{ms:+,.0f}",
            minimum=int(limit("compare_min_steps")),
        )
    )
    return homeless(page)


def _rows(c: Comparison) -> tuple[list[Change], list[Change], int]:
    """Causes of the step; those of the machine where they are left out; and how many are too small to show."""
    if c.total is None:
        return [], [], 0
    least = limit("show_share") * max(c.total.before, c.total.after)
    shown = [x for x in c.causes if max(abs(x.difference), x.before, x.after) >= least]
    apart = MACHINE if c.machine_left_out else ()
    machine = [x for x in shown if x.name in apart]
    return [x for x in shown if x.name not in apart], machine, len(c.causes) - len(shown)


def _order(x: Change) -> int:
    return palette.place(x.name)


def _sides(c: Comparison) -> list[tuple[str, object, Callable[[Change], float]]]:
    return [("From", c.before, lambda x: x.before), ("To", c.after, lambda x: x.after)]


def _bar(c: Comparison, words: str, value: Callable[[Change], float]) -> Markup:
    whole = max(sum(x.before for x in c.causes), sum(x.after for x in c.causes))
    parts = [
        bars.Part(x.name, palette.look(x.name), value(x), f"{x.name}: {duration(value(x))} per step")
        for x in sorted(c.causes, key=_order)
        if value(x) > 0
    ]
    described = ", ".join(p.text for p in sorted(parts, key=lambda p: -p.value)[:4])
    label = f"{words}: a mean step of {duration(sum(value(x) for x in c.causes))}"
    return Markup(bars.bar(parts, whole=whole, label=label, description=described, height=32))


def _picture(x: Change, reach: float) -> Markup:
    sure = f"95% sure: {num(x.low)} to {num(x.high)} ms" + ("" if x.told else ", so it may be noise")
    label = f"{x.name}: {num(x.difference)} ms per step"
    return Markup(change(x.difference, x.low, x.high, reach=reach, label=label, description=sure, told=x.told))
