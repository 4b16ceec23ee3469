"""From two runs to a verdict."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from trainperf.comparison import likeness, words
from trainperf.comparison.bootstrap import Floats, draw, interval, replicates
from trainperf.comparison.model import Change, Comparison, Kind, Relative, Side
from trainperf.comparison.sample import Sample, sample
from trainperf.findings.thresholds import limit
from trainperf.findings.vocabulary import CAUSES, PHASES
from trainperf.run import Run

_LONGEST_NAME: Final = 200


def compare(before: Run, after: Run, *, seed: int = 0, between_runs: float | None = None) -> Comparison:
    """What changed from `before` to `after`.

    `between_runs`: the share by which two runs of one program are known to differ here; by default what thresholds.md
    says. Raises RunFileError when a file turns out to be damaged.
    """
    devices = bool(before.devices and after.devices)
    a, b = sample(before, devices=devices), sample(after, devices=devices)
    sides = _side(before, a), _side(after, b)
    machine = likeness.machine(before, after, between_runs)
    notes = (*likeness.notes(before, after), *words.busy(machine))
    why_not = _why_not(before, after, a, b) or (machine.left_out and likeness.kept_off_too_long(before, after))
    if why_not:
        return Comparison(
            kind="unknown",
            verdict=f"cannot tell: {why_not}",
            before=sides[0],
            after=sides[1],
            relative=None,
            total=None,
            notes=notes,
        )
    starts = draw(2 * seed)
    paired = abs(a.steps - b.steps) <= limit("compare_paired_lengths") * max(a.steps, b.steps)
    other = starts if paired else draw(2 * seed + 1)
    drawn = replicates(a.values, a.count, starts), replicates(b.values, b.count, other)
    changes = {name: _change(name, a, b, drawn, machine.between_runs) for name in a.columns}
    total = changes["loop" if machine.left_out else "wall"]
    relative, kind = _relative(total), _kind(_relative(total))
    loop = _relative(changes["loop"])
    if machine.others is None and _disagree(relative, loop):
        kind, verdict = "unknown", words.unknown_machine(relative, loop)
    else:
        verdict = words.verdict(kind, relative, sides, machine)
        if machine.left_out:
            verdict += words.without_machine(changes["wall"], changes["loop"])
    gone, new = _findings(before, after)
    return Comparison(
        kind=kind,
        verdict=verdict,
        before=sides[0],
        after=sides[1],
        relative=relative,
        total=total,
        wall=changes["wall"],
        causes=_largest_first(changes[name] for name in CAUSES),
        phases=_largest_first(changes[f"phase {name}"] for name in PHASES),
        devices=_devices(changes) if devices else (),
        machine_left_out=machine.left_out,
        gone=gone,
        new=new,
        notes=notes,
    )


def _side(run: Run, steps: Sample) -> Side:
    verdict = run._found.verdict
    finding = next((f for f in run._found.findings if f.id == verdict.finding), None)
    median = run.wall_ms_quantile(0.5)
    return Side(
        path=run.path,
        name=run.meta.get("name", "")[:_LONGEST_NAME],
        started=run.meta.get("started", ""),
        label=finding.slug if finding is not None else verdict.text.partition(":")[0],
        steps=steps.steps,
        left_out=steps.left_out,
        steps_per_row=steps.steps_per_row,
        median_ms=None if math.isnan(median) else median,
    )


def _why_not(before: Run, after: Run, a: Sample, b: Sample) -> str:
    """Why there is nothing to be said; "" when there is."""
    for which, run in (("first", before), ("second", after)):
        if not run.step_count:
            return f"no training step was seen in the {which} run ({run.path})"
    least = int(limit("compare_min_steps"))
    few = [(which, s) for which, s in (("first", a), ("second", b)) if min(s.steps, s.rows) < least]
    if few:
        return words.too_few(few, least)
    other = likeness.other_step(before, after)
    if other:
        return other
    if not any(a.mean(name) > 0 and b.mean(name) > 0 for name in CAUSES):
        return "these are different loops: no cause has time in both"
    return ""


def _change(name: str, a: Sample, b: Sample, drawn: tuple[Floats, Floats], between_runs: float) -> Change:
    column = a.columns.index(name)
    before, after = a.mean(name), b.mean(name)
    spread = between_runs * max(before, after)
    low, high = interval(drawn[0][:, column], drawn[1][:, column], after - before, spread)
    return Change(name.removeprefix("phase ").removeprefix("idle "), before, after, low, high)


def _relative(total: Change) -> Relative:
    base = total.before or 1e-9
    return total.difference / base, total.low / base, total.high / base


def _kind(relative: Relative) -> Kind:
    _, low, high = relative
    if low > 0:
        return "slower"
    if high < 0:
        return "faster"
    return "unknown" if (high - low) / 2 > limit("compare_resolution") else "same"


def _disagree(a: Relative, b: Relative) -> bool:
    """One tells a difference and the other does not, or another one."""
    return _kind(a) != _kind(b) or a[2] < b[1] or b[2] < a[1]


def _largest_first(changes: Iterable[Change]) -> tuple[Change, ...]:
    return tuple(sorted((c for c in changes if c.before or c.after), key=lambda c: -abs(c.difference)))


def _devices(changes: dict[str, Change]) -> tuple[Change, ...]:
    """Busy, idle, and what it idled for, the largest difference first."""
    causes = _largest_first(changes[f"idle {name}"] for name in CAUSES)
    return (changes["device busy"], changes["device idle"], *causes)


def _findings(before: Run, after: Run) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Gone, and new."""
    a, b = ({f.id: f"{f.id} {f.slug}" for f in run.findings if f.severity != "info"} for run in (before, after))
    return tuple(a[id] for id in a if id not in b), tuple(b[id] for id in b if id not in a)
