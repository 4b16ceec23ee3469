"""What no finding has told yet: the host's nanoseconds by (phase, mechanism), and the device's idle ones by cause.

Host time and device idleness are two clocks on the same wall. A finding claims host time. Where a device was seen its
cost is not that time but what the device idled for it: while the device has work, the host loses nothing. A finding's
part of the idleness that a cause made is its part of the host's time in that cause; what the host's time does not show
(another thread's wait, a queue that fills again after a wait) a finding claims by name. Each nanosecond of either clock
is given away once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from trainperf.findings.model import Cell, Finding, FunctionInPhase


@dataclass(frozen=True, slots=True)
class Share:
    """What a finding gets of what is left."""

    claims: dict[Cell, int]
    idle: dict[str, int] | None  # by cause; None: no device was seen
    cost_ns: int
    wanted_ns: int  # the cost, had nobody told a part of it before
    by_device: bool  # the cost is what the device lost


class Ledger:
    """Starts full; take() empties it."""

    def __init__(
        self, host: Mapping[Cell, int], idle: Mapping[str, int] | None, cause_of: Callable[[Cell], str]
    ) -> None:
        """`idle`: the device's, by cause; None: no device was seen."""
        self._host = dict(host)
        self._idle = dict(idle) if idle is not None else None
        self._cause_of = cause_of
        self._of_functions: defaultdict[FunctionInPhase, int] = defaultdict(int)
        self._whole_host = self._by_cause(host)
        self._whole_idle = dict(idle or {})

    def cells(self, cause: str) -> dict[Cell, int]:
        """The host's time in a cause that nobody has told."""
        return {cell: left for cell, left in self._host.items() if left > 0 and self._cause_of(cell) == cause}

    def left(self, cell: Cell) -> int:
        return self._host.get(cell, 0)

    def told_of(self, function: tuple[str, str], phase: str) -> int:
        """What findings have told of the time of a function of the user's in a phase, in whatever mechanism: cells do
        not tell whose their time was."""
        return self._of_functions.get((function, phase), 0)

    def idle(self, causes: Iterable[str]) -> dict[str, int]:
        """The device's idleness for these causes that nobody has told; empty without a device."""
        idle = self._idle or {}
        return {cause: ns for cause in causes if (ns := idle.get(cause, 0)) > 0}

    def fit(self, finding: Finding) -> Share:
        """What is left of the finding's claims, and the idleness that goes with them."""
        claims = {cell: min(ns, self._host.get(cell, 0)) for cell, ns in finding.claims.items()}
        if self._idle is None:
            return Share(claims, None, sum(claims.values()), sum(finding.claims.values()), False)
        by_name = finding.idle_claims
        wanted = by_name if by_name is not None else self._in_proportion(finding.claims)
        mine = by_name if by_name is not None else self._in_proportion(claims)
        idle = {cause: min(ns, self._idle.get(cause, 0)) for cause, ns in mine.items()}
        if not finding.by_device:
            return Share(claims, idle, sum(claims.values()), sum(finding.claims.values()), False)
        exposed = finding.exposed_ns
        return Share(claims, idle, sum(idle.values()) + exposed, sum(wanted.values()) + exposed, True)

    def take(self, share: Share, of_functions: Mapping[FunctionInPhase, int]) -> None:
        for function, ns in of_functions.items():
            self._of_functions[function] += ns
        for cell, ns in share.claims.items():
            self._host[cell] -= ns
        for cause, ns in (share.idle or {}).items():
            assert self._idle is not None  # fit() gave none otherwise
            self._idle[cause] -= ns

    def _in_proportion(self, claims: Mapping[Cell, int]) -> dict[str, int]:
        return {
            cause: self._whole_idle.get(cause, 0) * ns // whole
            for cause, ns in self._by_cause(claims).items()
            if (whole := self._whole_host.get(cause, 0))
        }

    def _by_cause(self, cells: Mapping[Cell, int]) -> dict[str, int]:
        sums: defaultdict[str, int] = defaultdict(int)
        for cell, ns in cells.items():
            sums[self._cause_of(cell)] += ns
        return sums
