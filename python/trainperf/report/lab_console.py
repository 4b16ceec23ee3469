"""What `trainperf lab` found, for people: one row a run, then what the jumps mean."""

from __future__ import annotations

from trainperf.prove.lab import Lab
from trainperf.report.text import Line, block


def lines(found: Lab, *, width: int = 80) -> list[Line]:
    result: list[Line] = [[(f"{f'{found.counts}/s':>27}   ms/step   peak memory", "dim")]]
    for run in found.runs:
        if run.rate is None:
            if run.problem:
                result.append([(f"{run.name:<16}  {run.problem}"[:width], "")])
            continue
        peak = run.peak_bytes.get("cuda", run.peak_bytes.get("rss", 0)) / 2**20
        result.append([(f"{run.name:<16}  {run.rate:>9.0f}   {run.step_ms or 0:>7.1f}   {peak:>7.0f} MiB", "")])
    if found.sentence:
        result += block("So", found.sentence, width, 6, "bold")
    if found.interrupted:
        result += block("Note", "interrupted: what stands above was found until then", width, 2)
    return result
