"""What a rule is: a function of a run's facts, with an id, limits and what it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from trainperf.findings.facts import Facts
from trainperf.findings.gpu import Gpu
from trainperf.findings.model import Limits, Outcome, Role, Unsure
from trainperf.findings.thresholds import limit

WARNS: Final = Limits(limit("warn_share"), limit("critical_share"))
PURE_LOSS: Final = Limits(limit("rare_warn_share"), limit("critical_share"))  # and cheap to mend


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of trouble. `look` is pure: facts in, outcome out."""

    id: str
    slug: str
    limits: Limits
    needs: tuple[str, ...]  # probes without which it abstains
    role: Role
    look: Callable[[Facts, Limits], Outcome]

    def check(self, facts: Facts) -> Outcome:
        return self.look(facts, self.limits)


def rule(
    id: str, slug: str, limits: Limits, *, needs: tuple[str, ...] = (), role: Role = "cost"
) -> Callable[[Callable[[Facts, Limits], Outcome]], Rule]:
    """Makes a rule of a function. It abstains where one of the probes that it `needs` gave nothing."""
    return lambda look: Rule(id, slug, limits, needs, role, look)


def device_rule(
    id: str, slug: str, limits: Limits, *, needs_calls: bool = False, role: Role = "cost"
) -> Callable[[Callable[[Facts, Gpu, Limits], Outcome]], Rule]:
    """Likewise of a rule about the device: it says nothing where nothing is trained on one, and abstains where that was
    not seen, or not what it `needs_calls` for, the host's calls into the device's runtime."""

    def of(look: Callable[[Facts, Gpu, Limits], Outcome]) -> Rule:
        def on_device(facts: Facts, limits: Limits) -> Outcome:
            if facts.gpu is None:
                return Unsure("no_device", {"why": facts.gpu_unseen}) if facts.gpu_unseen else None
            if needs_calls and not facts.gpu.saw_calls:
                return Unsure("no_calls")
            return look(facts, facts.gpu, limits)

        return Rule(id, slug, limits, (), role, on_device)

    return of
