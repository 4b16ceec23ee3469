"""All words of findings: a module for each family of rules, and general.py."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Final

from trainperf.findings.messages import (
    blocked,
    chores,
    data,
    general,
    gil,
    gpu,
    host,
    loop,
    machine,
    memory,
    run,
    runtime,
    settings,
    trainer,
    verdict,
)
from trainperf.findings.messages.catalogue import Doubt, Message

FAMILIES: Final[tuple[ModuleType, ...]] = (
    blocked,
    chores,
    data,
    gil,
    gpu,
    host,
    loop,
    machine,
    memory,
    run,
    runtime,
    settings,
    trainer,
)

MESSAGES: Final[Mapping[str, Mapping[str, Message]]] = {
    id: of for family in FAMILIES for id, of in family.MESSAGES.items()
}
TEXTS: Final[Mapping[str, str]] = {
    **general.TEXTS,
    **verdict.TEXTS,
    **{k: text for family in FAMILIES for k, text in family.TEXTS.items()},
}
UNSURE: Final[Mapping[str, Doubt | str]] = {
    **general.UNSURE,
    **{k: text for family in FAMILIES for k, text in family.UNSURE.items()},
}
