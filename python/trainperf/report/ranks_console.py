"""The ranks of a job in a terminal: who keeps the others waiting, and each one's step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trainperf.ranks import Rank, Ranks
from trainperf.report.text import Line, clean, middle, wrap

if TYPE_CHECKING:
    from trainperf.run import Run

_INDENT: Final = 6
_NUMBERS: Final = 26  # columns of the two times


def lines(found: Ranks, about: Run, *, width: int = 80) -> list[Line]:
    """`about`: the run that what follows tells of."""
    style = "bold green" if found.even else "bold yellow"
    out: list[Line] = []
    for i, text in enumerate(wrap(clean(found.sentence), width - 11, 4)):
        out.append([("trainperf  " if i == 0 else " " * 11, "bold"), (text, style)])
    hosts = len({r.host for r in found.ranks}) > 1
    longest = max(len(_name(r, hosts)) for r in found.ranks)
    named = max(_INDENT, min(longest, width // 3))
    out.append([(f"{'rank':<{named}}{'ms/step':>11}{'own work':>13}  verdict", "bold")])
    out += [_row(r, found, named, hosts, width) for r in found.ranks]
    if found.count > len(found.ranks):
        left_out = found.count - len(found.ranks)
        out.append([(f"and {left_out:,} more, with neither the most nor the least work of their own", "dim")])
    out.append([("own work: the step without waiting for other ranks and exchanging with them", "dim")])
    of = next((r.rank for r in found.ranks if r.file == about.path.rpartition("/")[2]), found.straggler)
    what = "the straggler" if len(found.stragglers) == 1 else "the slowest of the stragglers"
    out += [[], [(f"Of rank {of}{f', {what}' if of == found.straggler else ''}:", "bold")]]
    return out


def _name(r: Rank, hosts: bool) -> str:
    return clean(f"{r.rank} {r.host}" if hosts else str(r.rank))


def _row(r: Rank, found: Ranks, named: int, hosts: bool, width: int) -> Line:
    slow = r.rank in found.stragglers
    own = f"{'up to ' if found.vague(r) else ''}{r.own_ms:,.1f}"
    verdict = clean(found.told(r)) + (" (killed, or still running)" if r.ended == "killed" else "")
    room = max(10, width - named - _NUMBERS)
    return [
        (f"{middle(_name(r, hosts), named):<{named}}{r.mean_ms:>11,.1f}", "bold" if slow else ""),
        (f"{own:>13}  ", "bold yellow" if slow else ""),
        (wrap(verdict, room, 1)[0], "" if slow else "dim"),
    ]
