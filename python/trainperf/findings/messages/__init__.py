"""All words of findings: a module for each family of rules, and general.py."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from trainperf.findings.messages import data, general, gpu, host, machine, run, trainer, waits
from trainperf.findings.text import Count, Doubt, Message, Ns, fill

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.model import Params

FAMILIES: Final[tuple[ModuleType, ...]] = (data, gpu, host, machine, run, trainer, waits)


def _all(kind: str) -> dict[str, Any]:
    return {key: text for family in (general, *FAMILIES) for key, text in getattr(family, kind, {}).items()}


MESSAGES: Final[Mapping[str, Mapping[str, Message]]] = _all("MESSAGES")
TEXTS: Final[Mapping[str, str]] = _all("TEXTS")
UNSURE: Final[Mapping[str, Doubt | str]] = _all("UNSURE")


def terms(facts: Facts) -> Params:
    """What every text may name."""
    return {
        **{name: of[facts.inference] for name, of in general.TERMS.items()},
        "gpu": facts.gpu.name if facts.gpu is not None else None,
        "inference": facts.inference,
        "thread_name": facts.step_thread_name,
        "steps": Count(facts.steps),
        "step": Ns(facts.wall_ns / facts.steps) if facts.steps else None,
    }


def words(facts: Facts, template: str, params: Params) -> str:
    return fill(template, {**terms(facts), **params}, TEXTS)
