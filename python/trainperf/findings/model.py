"""What a rule says, a Diagnosis or that it is Unsure, and what views show of it: a Finding, an Abstained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

Severity = Literal["critical", "warning", "info"]
Confidence = Literal["high", "medium", "low"]
# cost: time that would be saved; locator: where or when time is lost that others report; once: paid by a longer run no
# more than by this one.
Role = Literal["cost", "locator", "once"]
# Of a run among the ranks of its job, by the files of all: the others wait for it; none waits for another; not known.
Standing = Literal["late", "even", ""]
Saving = Literal["at least", "about", "up to"]  # what a cost is of what its fix saves
Cell = tuple[str, str]  # (phase, mechanism)
FunctionInPhase = tuple[tuple[str, str], str]  # ((file, function), phase)
# What is put into a message: numbers of text.py, names, places, what is Said; rows of them for lines that repeat; None:
# not known.
Param: TypeAlias = (
    "str | int | float | tuple[str, ...] | tuple[float, ...] | Said | tuple[Said, ...]"
    " | tuple[Mapping[str, Param], ...] | None"
)
Params: TypeAlias = Mapping[str, Param]
_TAKEN_BY_OTHERS: Final = ("gil_wait", "descheduled")
_OWN_WORK: Final = ("python", "compute", "blocked_io")


@dataclass(frozen=True, slots=True)
class Said:
    """A text of the catalogue (messages/), and what is put into it."""

    key: str
    params: Params = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Limits:
    """Shares of the run's time from which a rule speaks, and from which it is critical (None: never)."""

    warn: float
    critical: float | None


@dataclass(frozen=True, slots=True)
class Affected:
    """The steps that have a cost: all of the run's, or the few that hold nearly all of it."""

    steps: int
    share: float  # of the cost, in these steps

    def rare(self, steps: int) -> bool:
        """Of so many: to do it in fewer of them gains little."""
        return 10 * self.steps <= steps


@dataclass(frozen=True, slots=True)
class Claim:
    """Which time of the run a diagnosis explains: each nanosecond is claimed once, see ledger.py."""

    cause: str
    cells: Mapping[Cell, int] = field(default_factory=dict)
    # In a run with a device:
    idle: Mapping[str, int] | None = None  # how long it idled for this, by cause; None: in proportion to `cells`
    exposed_ns: int = 0  # device time that nothing hid: copies, collectives
    by_device: bool = True  # the cost is what the device lost; False: wall time, whatever the device did
    # Of a part of what functions of the user's take, by (file, function) and phase: their samples tell so much less.
    of_functions: Mapping[FunctionInPhase, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sure:
    """What the confidence in a diagnosis rests on, besides the number of steps."""

    samples: int | None = None  # behind the place that it names; None: nothing was sampled
    tier: str | Said = ""  # of the probe, or how else it was estimated
    doubts: tuple[Said, ...] = ()
    level: Confidence | None = None  # where the doubts alone, or other reasons in their place, decide it


@dataclass(frozen=True, slots=True)
class Saves:
    """What the fix saves."""

    share: float = 1.0  # of the cost, at most
    more: bool = False  # what the fix takes away costs time elsewhere too, which was not told apart
    about: bool = False  # an estimate: what competes with training for CPUs and caches goes as well
    finds_out: bool = False  # it tells more and saves nothing by itself, or what it takes away may be needed
    drop_in: bool = False  # an option that changes nothing else: worth leading with, though its cost is no trouble


ALL = Saves()


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What a rule has found, without a word of prose: messages/ has those, by the rule's id and the variant."""

    variant: str
    severity: Severity | None = None  # None: by its cost, as the rule's limits grade that
    claim: Claim
    params: Params = field(default_factory=dict)
    place: str = ""  # the user's file:line
    who: tuple[str | Said, ...] | None = None  # threads, processes, functions; None: the step thread
    affected: Affected | int | None = None  # a number: all of the cost is in so many steps; None: in every step
    sure: Sure = Sure()
    saves: Saves = ALL
    by_others: bool = False  # done by other programs on this machine
    tells_idle: bool = False  # its evidence says what the device lost by it
    slow_part: Said | None = None  # of a locator: the part of the run that its cause alone makes slow
    slug: str = ""  # of a variant with a name of its own; "": the rule's
    role: Role | None = None  # of a variant that plays another; None: the rule's


@dataclass(frozen=True, slots=True)
class Unsure:
    """A rule that could not look, or could not tell: never the same as "healthy"."""

    variant: str
    params: Params = field(default_factory=dict)
    # Time that it could not tell the owner of, for the verdict: of which cause, and how long.
    cause: str = ""
    ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a person should know and do: a diagnosis in words.

    `claims` says which nanoseconds of the run (phase, mechanism) the cost stands for: each is claimed once.
    """

    id: str
    slug: str
    variant: str = ""
    role: Role = "cost"
    params: Params = field(default_factory=dict, repr=False)
    severity: Severity
    cause: str
    title: str
    brief: str = ""  # what is beside the verdict said of it; "" of most
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
    saves_about: bool = False  # an estimate, that can be exceeded
    drop_in: bool = False  # the fix is an option that changes nothing else
    finds_out: bool = False  # the fix tells more and saves nothing by itself, or what it takes away may be needed
    waits_apart: bool = False  # what its code waited for a CPU, notable in this run, is told as descheduled alone
    claims: Mapping[Cell, int] = field(default_factory=dict, repr=False)
    also_causes: tuple[str, ...] = ()  # other than `cause`, of which it claims a notable part
    slow_part: Said | None = None  # of a locator: the part of the run that its cause alone makes slow
    # In a run with a device (see ledger.py):
    idle_ns: int | None = None  # how long the device idled for it, in the whole run; None: no device was seen
    exposed_ns: int = 0  # device time that nothing hid: copies, collectives
    idle_claims: Mapping[str, int] | None = field(default=None, repr=False)  # by cause; None: in proportion to `claims`
    by_device: bool = True  # its cost is what the device lost by it; False: wall time, whatever the device did
    of_functions: Mapping[FunctionInPhase, int] = field(default_factory=dict, repr=False)
    tells_idle: bool = False  # its evidence says so

    @property
    def saving(self) -> Saving:
        if self.saves_more:
            return "at least"
        # With what others took, and with the loop's own work where no device hides it, waits and misses of caches go.
        frees_caches = self.cause in _OWN_WORK and self.fix_share == 1 and self.idle_ns is None
        about = self.waits_apart or self.saves_about or self.cause in _TAKEN_BY_OTHERS or frees_caches
        return "about" if about else "up to"

    @property
    def causes(self) -> tuple[str, ...]:
        return (self.cause, *self.also_causes)


@dataclass(frozen=True, slots=True)
class Abstained:
    """A rule that could not look, in words. Never the same as "healthy"."""

    id: str
    slug: str
    why: str
    # Time that it could not tell the owner of, for the verdict: where it was looked for, of which cause, and how long.
    whose: str = ""
    cause: str = ""
    ns: int = 0
    unknown: str = ""  # what of it is not known; "" where only samples are missing, of which a longer run has more
    variant: str = ""
    params: Params = field(default_factory=dict)


Outcome = Diagnosis | Unsure | None
