"""A comparison in a terminal: the verdict, the step, and each cause with its difference and interval."""

from __future__ import annotations

from typing import Final

from trainperf.comparison.model import Change, Comparison, Side
from trainperf.comparison.sample import MACHINE
from trainperf.findings.thresholds import limit
from trainperf.report.text import INDENT, Line, block, clean, middle, wrap

_MOST_RANKS: Final = 16
_STYLE: Final = {"faster": "bold green", "slower": "bold red", "same": "bold", "unknown": "bold yellow"}


def lines(comparison: Comparison, *, width: int = 80) -> list[Line]:
    c = comparison
    out: list[Line] = []
    for i, text in enumerate(wrap(clean(c.verdict), width - 11, 4)):
        out.append([("trainperf  " if i == 0 else " " * 11, "bold"), (text, _STYLE[c.kind])])
    out += _side("From", c.before, width) + _side("To", c.after, width)
    if c.total is not None:
        out += _table(c, c.total) + _ranks(c)
    for label, findings in (("Gone", c.gone), ("New", c.new)):
        if findings:
            out += block(label, ", ".join(findings), width, 2)
    for note in c.notes:
        out += block("Note", note, width, 2, "dim")
    return out


def _side(label: str, side: Side, width: int) -> list[Line]:
    facts = [f"{side.steps:,} step{'s' if side.steps != 1 else ''}"]
    if side.ranks > 1:
        facts.insert(0, f"{side.ranks:,} ranks")
    if side.median_ms is not None:
        facts.append(f"median {side.median_ms:.4g} ms")
    if side.left_out:
        facts.append(f"{side.left_out:,} warm-up left out")
    if side.steps_per_row > 1:
        facts.append(f"in means of {side.steps_per_row}")
    tail = f" ({', '.join(facts)})"
    return block(label, middle(clean(side.path), max(10, width - INDENT - len(tail))) + tail, width, 2)


def _table(c: Comparison, total: Change) -> list[Line]:
    """Rows of causes add up to the step; those that neither moved nor matter are one row."""
    least = limit("show_share") * max(total.before, total.after)
    shown = [x for x in c.causes if max(abs(x.difference), x.before, x.after) >= least]
    rest = len(c.causes) - len(shown)
    digits = 2 if max(total.before, total.after) < 100 else 1
    name = "the loop" if c.machine_left_out else "step"
    room = _room(c)
    out: list[Line] = [[(f"{'ms/step':<{INDENT + room}}{'from':>9}{'to':>10}{'change':>10}   95% sure", "bold")]]
    if c.machine_left_out and c.wall is not None:
        out += [_row("step", c.wall, digits, room, indent=0)]
    out += [_row(name, total, digits, room, indent=0)]
    apart = MACHINE if c.machine_left_out else ()
    out += [_row(x.name, x, digits, room, indent=2) for x in shown if x.name not in apart]
    if rest:
        out.append([(" " * (INDENT + 2) + f"{rest} other{'s' if rest > 1 else ''} below 1%", "dim")])
    out += [_row(x.name, x, digits, room, indent=0) for x in shown if x.name in apart]
    busy_and_idle = c.devices[:2]
    out += [_row(x.name, x, digits, room, indent=0) for x in busy_and_idle]
    out += [_row(x.name, x, digits, room, indent=2) for x in c.devices[2:] if max(x.before, x.after) >= least]
    return out


def _ranks(c: Comparison) -> list[Line]:
    """The rank that changed most comes first, with the cause that it changed through."""
    rows = sorted(c.ranks, key=lambda r: -abs(r.total.difference))
    digits = 2 if max((max(r.total.before, r.total.after) for r in rows), default=0.0) < 100 else 1
    out: list[Line] = []
    for r in rows[:_MOST_RANKS]:
        line = _row(f"rank {r.rank}", r.total, digits, _room(c), indent=0)
        if r.cause.told:
            line.append((f"  {r.cause.name}", "dim"))
        out.append(line)
    if len(rows) > _MOST_RANKS:
        out.append([(" " * INDENT + f"{len(rows) - _MOST_RANKS:,} more ranks changed less", "dim")])
    return out


def _room(c: Comparison) -> int:
    """Characters of the column of names: causes that are told as one have a longer."""
    return max((14, *(len(x.name) + 2 for x in c.causes)))


def _row(name: str, change: Change, digits: int, room: int, *, indent: int) -> Line:
    style = "" if not change.told else ("red" if change.difference > 0 else "green")
    label = " " * (INDENT + indent) + f"{name:<{room - indent}}"
    numbers = f"{change.before:>9,.{digits}f}{change.after:>10,.{digits}f}{change.difference:>+10,.{digits}f}"
    sure = f"   {change.low:+,.{digits}f} to {change.high:+,.{digits}f}" if change.told else "   noise"
    return [(label, "bold" if change.told else ""), (numbers, style), (sure, style or "dim")]
