"""What `trainperf try`, `sweep` and `lab` found, for programs: see docs/prove.md."""

from __future__ import annotations

import math
from typing import Any

from trainperf.prove.attempt import Result
from trainperf.prove.lab import Lab
from trainperf.prove.prover import Outcome
from trainperf.prove.sweep import Sweep


def to_dict(result: Result, *, patch: str, note: str) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "changes": [_outcome(outcome) for outcome in result.outcomes],
        "accepted": dict(result.accepted.settings),
        "untried": list(result.untried),
        "patch": patch or None,
        "patch_note": note,
        "interrupted": result.interrupted,
        "seconds": round(result.seconds, 1),
    }


def of_sweep(found: Sweep, *, patch: str, note: str) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "changes": [_outcome(found.outcome)] if found.outcome is not None else [],
        "headroom_ms": round(found.headroom_ms, 3) if found.headroom_ms is not None else None,
        "step_ms": round(found.step_ms, 3),
        "best": dict(found.best.settings) if found.best is not None else None,
        "grid": [
            {
                "num_workers": p.workers,
                "predicted_ms": round(p.predicted_ms, 3) if p.predicted_ms is not None else None,
                "measured_ms": round(p.measured_ms, 3) if p.measured_ms is not None else None,
                "samples_per_s": round(p.samples_per_s, 1) if p.samples_per_s is not None else None,
                "problem": p.problem,
            }
            for p in found.grid
        ],
        "reason": found.reason,
        "patch": patch or None,
        "patch_note": note,
        "interrupted": found.interrupted,
        "seconds": round(found.seconds, 1),
    }


def of_lab(found: Lab) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "changes": [],  # nothing is proven here
        "runs": [
            {
                "name": run.name,
                "change": str(run.change) or None,
                "samples_per_s": run.rate if found.counts == "samples" else None,
                "step_ms": run.step_ms,
                "peak_bytes": dict(run.peak_bytes),
                "causes_ms": dict(run.causes_ms),
                "problem": run.problem,
            }
            for run in found.runs
        ],
        "sentence": found.sentence,
        "patch": None,
        "interrupted": found.interrupted,
        "seconds": round(found.seconds, 1),
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
        "losses": {"same": "equal"}.get(outcome.same, outcome.same) or None,
        "reason": outcome.reason,
        "notes": list(outcome.notes),
    }
