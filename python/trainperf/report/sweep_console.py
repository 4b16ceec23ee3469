"""What `trainperf sweep` found, for people: the headroom, the settings that were tried, and the proof of the best."""

from __future__ import annotations

from trainperf.prove.sweep import Sweep
from trainperf.report.text import Line, block
from trainperf.report.try_console import of_outcome, patch_lines


def lines(found: Sweep, *, patch: str, width: int = 80) -> list[Line]:
    result: list[Line] = []
    if found.floor:
        result += block("Floor", found.floor, width, 3)
    if any(p.samples_per_s or p.problem for p in found.grid) and found.headroom_ms is None:
        result.append([("workers    samples/s, of the loader alone", "dim")])
        for p in found.grid:
            figure = f"{p.samples_per_s:>9.0f}" if p.samples_per_s else p.problem
            result.append([(f"{p.workers:>7}    {figure}", "")])
    elif len(found.grid) > 1:
        result.append([("workers    predicted    measured ms/step", "dim")])
        for p in found.grid:
            if p.measured_ms is None and not p.problem:
                continue
            said = f"{p.predicted_ms:.1f}" if p.predicted_ms is not None else "now"
            result.append([(f"{p.workers:>7}    {said:>9}    " + (p.problem or f"{p.measured_ms:>8.1f}"), "")])
    if found.outcome is not None:
        result += of_outcome(found.outcome, width)
    elif found.reason:
        result += block("Found", found.reason, width, 2)
    if found.interrupted:
        result += block("Note", "interrupted: what stands above was found until then", width, 2)
    return result + patch_lines(patch, width)
