"""`trainperf compare --json`: a contract, described in docs/compare.md. SCHEMA_VERSION rises when it changes."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from trainperf.comparison.model import Change, Comparison, RankChange

SCHEMA_VERSION: Final = 1


def to_dict(comparison: Comparison) -> dict[str, Any]:
    c = comparison
    relative = None
    if c.relative is not None:
        relative = dict(zip(("change", "low", "high"), c.relative, strict=True))
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": {"kind": c.kind, "text": c.verdict},
        "before": dataclasses.asdict(c.before),
        "after": dataclasses.asdict(c.after),
        "relative": relative,
        "total": _change(c.total) if c.total is not None else None,
        "wall": _change(c.wall) if c.wall is not None else None,
        "machine_left_out": c.machine_left_out,
        "causes": {change.name: _change(change) for change in c.causes},
        "phases": {change.name: _change(change) for change in c.phases},
        "devices": {change.name: _change(change) for change in c.devices},
        **({"ranks": [_rank(r) for r in c.ranks]} if c.ranks else {}),
        "findings": {"gone": list(c.gone), "new": list(c.new)},
        "notes": list(c.notes),
    }


def _rank(rank: RankChange) -> dict[str, Any]:
    return {"rank": rank.rank, **_change(rank.total), "cause": {"name": rank.cause.name, **_change(rank.cause)}}


def _change(change: Change) -> dict[str, float | bool]:
    return {
        "before_ms": change.before,
        "after_ms": change.after,
        "difference_ms": change.difference,
        "low_ms": change.low,
        "high_ms": change.high,
        "told": change.told,
    }
