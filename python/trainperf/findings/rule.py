"""What a rule is, and what those about the device share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

from trainperf.findings.facts import Facts
from trainperf.findings.gpu import Gpu
from trainperf.findings.model import Abstained, Limits, Outcome


class Rule(Protocol):
    """One kind of trouble. `check` is pure: facts in, outcome out."""

    @property
    def id(self) -> str: ...
    @property
    def slug(self) -> str: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def needs(self) -> tuple[str, ...]:
        """Probes without which the rule abstains."""
        ...

    def check(self, facts: Facts) -> Outcome: ...


class DeviceRule(ABC):
    """Says nothing where nothing is trained on a device, and abstains where that was not seen."""

    id: str
    slug: str
    limits: Limits
    needs: tuple[str, ...] = ()
    needs_calls = False  # the host's calls into the device's runtime

    def check(self, facts: Facts) -> Outcome:
        if facts.gpu is None:
            return Abstained(self.id, self.slug, facts.gpu_unseen) if facts.gpu_unseen else None
        if self.needs_calls and not facts.gpu.saw_calls:
            return Abstained(self.id, self.slug, "the host's calls to the device were not recorded")
        return self.look(facts, facts.gpu)

    @abstractmethod
    def look(self, facts: Facts, device: Gpu) -> Outcome:
        """As Rule.check."""
