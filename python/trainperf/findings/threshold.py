"""A number that a verdict depends on, with its source."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Threshold:
    name: str
    value: float
    unit: str
    meaning: str
    source: str
