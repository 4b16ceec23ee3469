"""What `trainperf try` found, for people: one block a change, then the patch."""

from __future__ import annotations

from typing import Final

from trainperf.prove.attempt import Result
from trainperf.prove.prover import Outcome, words
from trainperf.report.text import Line, block, clean

SAYS: Final = {
    "proven": "proven",
    "no_gain": "no gain",
    "changes_results": "changes results",
    "not_applied": "not applied",
    "failed": "failed",
    "undecided": "undecided",
}
_STYLES: Final = {"proven": "bold green", "failed": "bold red", "changes_results": "bold yellow"}
# So that nobody takes it for the loader's.
_COMPUTE: Final = "no data loading is in compute: it may fall because caches stay warm without the waits"
_CAUSES: Final = 3  # rows of what changed
_NOTABLE: Final = 0.02  # of the step


def lines(result: Result, *, patch: str, width: int = 80) -> list[Line]:
    """`patch`: its file and how to apply it, or why there is none; "" says nothing."""
    found: list[Line] = []
    for outcome in result.outcomes:
        found += of_outcome(outcome, width)
    if not result.outcomes and not result.interrupted:
        found += block("Try", "no finding of this run has a fix that can be tried without an edit", width, 3)
    if result.untried:
        found += block(
            "Edit",
            f"{', '.join(result.untried)}: not tried, as no setting that a trial can make fixes it (trainperf explain "
            "ID)",
            width,
            3,
        )
    if result.interrupted:
        found += block(
            "Note",
            "interrupted: the changes above were decided, the one that was being tried was not"
            if result.outcomes
            else "interrupted before any change was decided: run it again, or give a shorter --budget",
            width,
            3,
        )
    return found + patch_lines(patch, width)


def patch_lines(patch: str, width: int) -> list[Line]:
    return block("Patch", patch, width, 3) if patch else []


def headline(outcome: Outcome) -> str:
    """ "num_workers=2: proven 1.31x [1.27, 1.36], promised 1.35x"."""
    text = f"{outcome.change}: {SAYS[outcome.verdict]}"
    if outcome.evidence is not None and outcome.evidence.pairs:
        text += f" {words(outcome.evidence)}"
    if outcome.change.promised is not None:
        text += f", promised {outcome.change.promised:.2f}x"
    return text


def pairs_said(outcome: Outcome) -> str:
    """ "4 pairs of runs; the same losses to the bit in 51 steps"; "" where there was none."""
    if outcome.evidence is None or not outcome.evidence.pairs:
        return ""
    pairs = f"{outcome.evidence.pairs} pairs of runs"
    if outcome.repeated:
        pairs += f", and {outcome.repeated} run again as other programs disturbed them"
    return pairs + (f"; the same losses to the bit in {outcome.steps} steps" if outcome.same == "same" else "")


def of_outcome(outcome: Outcome, width: int) -> list[Line]:
    style = _STYLES.get(outcome.verdict, "bold")
    found = block(outcome.change.finding or "Try", headline(outcome), width, 3, style)
    if outcome.reason:
        found += block("", outcome.reason, width, 4)
    if pairs := pairs_said(outcome):
        found += block("", pairs, width, 2, "dim")
    for note in outcome.notes:
        found += block("", f"note: {clean(note)}", width, 3)
    step = sum(before for before, _ in outcome.causes.values())
    shown = [(c, a, b) for c, (a, b) in outcome.causes.items() if abs(a - b) >= _NOTABLE * step][:_CAUSES]
    if outcome.verdict in ("proven", "changes_results", "no_gain"):
        for cause, before, after in shown:
            found += block("", f"{cause:<14} {before:6.1f} -> {after:.1f} ms/step", width, 1, "dim")
        if outcome.change.of_loader and any(cause == "compute" for cause, _, _ in shown):
            found += block("", _COMPUTE, width, 2, "dim")
    return found
