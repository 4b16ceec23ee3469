"""Whether enough samples tell Python from native code: the time on the CPU is exact, its split is not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts

_Z = 1.96  # 95 %


@dataclass(frozen=True, slots=True)
class Unsplit:
    """Two causes that too few samples tell apart."""

    causes: tuple[str, str]

    @property
    def name(self) -> str:
        """As long as a narrow terminal has room for."""
        return "+".join(self.causes)


def unsplit(facts: Facts) -> Unsplit | None:
    """None where enough samples tell, where that time is too small to matter, and of a trace, which is not sampled."""
    native = "launch" if facts.run.feeds_device else "compute"
    if facts.of_trace or facts.share(facts.cause_ns("python") + facts.cause_ns(native)) < limit("warn_share"):
        return None
    of_cause = {"python": 0, native: 0}
    for d in facts.samples(states=["python", "native"]):
        cause = facts.cause_of((d.phase, d.state))
        if cause in of_cause:
            of_cause[cause] += d.count
    samples = sum(of_cause.values())
    if _interval(of_cause["python"], samples) <= limit("split_width"):
        return None
    return Unsplit(("python", native))


def _interval(some: int, samples: int) -> float:
    """How wide Wilson's 95 % interval of a share is: 0 .. 1."""
    if not samples:
        return 1.0
    p, z2 = some / samples, _Z * _Z
    return 2 * _Z * math.sqrt(p * (1 - p) / samples + z2 / (4 * samples**2)) / (1 + z2 / samples)
