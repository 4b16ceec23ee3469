"""What a rule says: a Finding, or that it Abstained and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["critical", "warning", "info"]
Confidence = Literal["high", "medium", "low"]
# Of a run among the ranks of its job, by the files of all: the others wait for it; none waits for another; not known.
Standing = Literal["late", "even", ""]
Cell = tuple[str, str]  # (phase, mechanism)


@dataclass(frozen=True, slots=True)
class Limits:
    """Shares of the run's time from which a rule speaks, and from which it is critical (None: never)."""

    warn: float
    critical: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a person should know and do.

    `claims` says which nanoseconds of the run (phase, mechanism) the cost stands for: each is claimed once.
    """

    id: str
    slug: str
    severity: Severity
    cause: str
    title: str
    cost_ns: int  # of the whole run
    share: float  # of the run's time, 0 .. 1
    cost_ms_per_step: float  # mean over all steps
    steps: int  # of the run
    steps_affected: int  # fewer than half of `steps`, and they hold nearly all of the cost; or equal to `steps`
    confidence: Confidence
    confidence_why: str
    evidence: tuple[str, ...]
    who: tuple[str, ...] = ()
    where: str = ""  # the user's file:line
    why: str = ""  # one line: who does what where
    fix: str = ""  # to paste
    will_not_help: str = ""
    docs: str = ""
    told_ns: int = 0  # of the run, and of its own besides: told by other findings
    told_by: tuple[str, ...] = ()
    affected_share: float = 1.0  # of the cost, in the affected steps
    by_others: bool = False  # done by other programs on this machine
    fix_share: float = 1.0  # of the cost, what the fix saves at most
    saves_more: bool = False  # what the fix takes away costs time elsewhere too, which was not told apart
    finds_out: bool = False  # the fix tells more and saves nothing by itself, or what it takes away may be needed
    waits_apart: bool = False  # what its code waited for a CPU, notable in this run, is told as descheduled alone
    claims: Mapping[Cell, int] = field(default_factory=dict, repr=False)
    also_causes: tuple[str, ...] = ()  # other than `cause`, of which it claims a notable part
    # In a run with a device (see ledger.py):
    idle_ns: int | None = None  # how long the device idled for it, in the whole run; None: no device was seen
    exposed_ns: int = 0  # device time that nothing hid: copies, collectives
    idle_claims: Mapping[str, int] | None = field(default=None, repr=False)  # by cause; None: in proportion to `claims`
    by_device: bool = True  # its cost is what the device lost by it; False: wall time, whatever the device did

    @property
    def causes(self) -> tuple[str, ...]:
        return (self.cause, *self.also_causes)


@dataclass(frozen=True, slots=True)
class Abstained:
    """A rule that could not look. Never the same as "healthy"."""

    id: str
    slug: str
    why: str
    # Time that it could not tell the owner of, for the verdict: where it was looked for, of which cause, and how long.
    whose: str = ""
    cause: str = ""
    ns: int = 0
    unknown: str = ""  # what of it is not known; "" where only samples are missing, of which a longer run has more


Outcome = Finding | Abstained | None
