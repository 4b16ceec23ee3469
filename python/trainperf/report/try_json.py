"""What `trainperf try` found, for programs: see docs/prove.md."""

from __future__ import annotations

import math
from typing import Any

from trainperf.prove.attempt import Outcome, Result


def to_dict(result: Result, *, patch: str) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "changes": [_outcome(outcome) for outcome in result.outcomes],
        "accepted": dict(result.accepted.settings),
        "untried": result.untried,
        "patch": patch or None,
        "interrupted": result.interrupted,
        "seconds": round(result.seconds, 1),
    }


def _outcome(outcome: Outcome) -> dict[str, Any]:
    evidence = outcome.evidence
    some = evidence is not None and evidence.pairs > 0
    known = evidence is not None and evidence.pairs > 1 and math.isfinite(evidence.interval[1])
    return {
        "change": str(outcome.change),
        "finding": outcome.change.finding or None,
        "verdict": outcome.verdict,
        "gain": round(evidence.gain, 4) if evidence is not None and some else None,
        "interval": [round(v, 4) for v in evidence.interval] if evidence is not None and known else None,
        "promised": round(outcome.change.promised, 4) if outcome.change.promised is not None else None,
        "pairs": evidence.pairs if evidence is not None else 0,
        "reason": outcome.reason,
        "notes": list(outcome.notes),
    }
