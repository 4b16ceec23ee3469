"""From two runs to a verdict."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from trainperf.comparison import likeness, words
from trainperf.comparison.bootstrap import Floats, draw, interval, ratio_interval, replicates
from trainperf.comparison.model import Change, Comparison, Kind, RankChange, Relative, Side
from trainperf.comparison.sample import MACHINE, Rows, Sample, row_name, rows_of, sample
from trainperf.findings.thresholds import limit
from trainperf.ranks import Job, ranks, same_ranks, straggler
from trainperf.run import Run
from trainperf.runfile.schema import PHASES

_LONGEST_NAME: Final = 200
_TINY_MS: Final = 1e-9
_ON_THE_CPU: Final = ("compute", "launch", "python")  # what a slower clock makes longer


def compare(before: Run, after: Run, *, seed: int = 0, between_runs: float | None = None) -> Comparison:
    """What changed from `before` to `after`.

    `between_runs`: the share by which two runs of one program are known to differ here; by default what thresholds.md
    says. Raises RunFileError when a file turns out to be damaged.
    """
    return _compare((before,), (after,), names=(before.path, after.path), seed=seed, between_runs=between_runs)


def compare_jobs(before: Job, after: Job, *, seed: int = 0, between_runs: float | None = None) -> Comparison:
    """The same of all ranks: of their mean step, and of each rank.

    Raises TrainperfError when the two have not the same ranks.
    """
    same_ranks(before, after)
    if len(before.runs) == 1:
        return compare(before.runs[0], after.runs[0], seed=seed, between_runs=between_runs)
    names = before.name, after.name
    return _compare(before.runs, after.runs, numbers=before.numbers, names=names, seed=seed, between_runs=between_runs)


def _compare(
    before: Sequence[Run],
    after: Sequence[Run],
    *,
    numbers: Sequence[int] = (0,),
    names: tuple[str, str],
    seed: int,
    between_runs: float | None,
) -> Comparison:
    runs = list(zip(before, after, strict=True))
    devices, not_compared = _of_devices([run for pair in runs for run in pair])
    rows = rows_of(run for pair in runs for run in pair)
    causes = [row_name(row) for row in rows]
    steps = [(sample(a, rows, devices=devices), sample(b, rows, devices=devices)) for a, b in runs]
    samples = list(zip(*steps, strict=True))
    sides = _side(before, samples[0], names[0]), _side(after, samples[1], names[1])
    lasted = min(a.seconds for a in samples[0]), min(b.seconds for b in samples[1])
    short = min(lasted) < limit("compare_long_run")
    machine = likeness.machine_of_all(runs, between_runs, short=short)
    notes = (*likeness.notes_of_all(runs, numbers), *words.busy(machine), *words.stragglers(*sides), *not_compared)
    why_not = _why_not(runs, steps, numbers, causes)
    if why_not:
        return _nothing(why_not, sides, notes)
    means = [(a.means, b.means) for a, b in steps]
    drawn = _drawn(steps, seed)
    columns = steps[0][0].columns
    changes = _changes(columns, _over_ranks(means), _over_ranks(drawn), machine.between_runs)
    too_long = likeness.kept_off_too_long(runs) if machine.left_out else ""
    if too_long:
        bounded = _by_far(changes, machine, likeness.kept_off(runs), sides)
        if bounded is None:
            return _nothing(f"{too_long}; run it again", sides, notes)
        judged, notes = bounded, (*notes, f"{too_long}: run it again to learn by how much")
    else:
        judged = _judge(changes, rows, machine, sides, lasted if short else None)
    if short:
        notes = (*notes, words.short(lasted))
    total = changes[judged.total] = _with_interval(changes[judged.total], judged.relative)
    gone, new = _findings(before, after)

    def of_rank(number: int, means: tuple[Floats, Floats], drawn: tuple[Floats, Floats]) -> RankChange:
        return _rank(number, _changes(columns, means, drawn, machine.between_runs), causes, judged.total)

    return Comparison(
        kind=judged.kind,
        verdict=judged.verdict,
        before=sides[0],
        after=sides[1],
        relative=judged.relative,
        total=total,
        wall=changes["wall"],
        causes=_largest_first(changes[cause] for cause in causes),
        phases=_largest_first(changes[f"phase {phase}"] for phase in PHASES),
        devices=_devices(changes, causes) if devices else (),
        ranks=tuple(map(of_rank, numbers, means, drawn)) if len(runs) > 1 else (),
        machine_left_out=judged.total == "loop",
        gone=gone,
        new=new,
        notes=notes,
    )


def _drawn(steps: Sequence[tuple[Sample, Sample]], seed: int) -> list[tuple[Floats, Floats]]:
    """Replicates of both sides of each rank: the same stretches of all ranks, as what slows them down together is no
    chance of each."""
    starts = draw(2 * seed)
    paired = all(abs(a.steps - b.steps) <= limit("compare_paired_lengths") * max(a.steps, b.steps) for a, b in steps)
    first, second = starts, starts if paired else draw(2 * seed + 1)
    if [a.steps for a, _ in steps] > [b.steps for _, b in steps]:  # by length, so that turned around they are the same
        first, second = second, first
    return [(replicates(a.values, a.count, first), replicates(b.values, b.count, second)) for a, b in steps]


def _of_devices(runs: Sequence[Run]) -> tuple[bool, tuple[str, ...]]:
    """Whether what devices did can be compared, step by step; and a note, where only a part of the steps has it."""
    if not all(run.devices for run in runs):
        return False, ()
    if any(device.traced is not None for run in runs for device in run.devices):
        return False, (words.DEVICES_IN_PART,)
    return True, ()


def _nothing(why: str, sides: tuple[Side, Side], notes: tuple[str, ...]) -> Comparison:
    return Comparison(
        kind="unknown",
        verdict=f"cannot tell: {why}",
        before=sides[0],
        after=sides[1],
        relative=None,
        total=None,
        notes=notes,
    )


@dataclass(frozen=True, slots=True)
class _Judged:
    total: Literal["wall", "loop"]  # what it is about: the loop is the step without time kept off the CPUs
    kind: Kind
    relative: Relative
    verdict: str


def _judge(
    changes: dict[str, Change],
    rows: Rows,
    machine: likeness.Machine,
    sides: tuple[Side, Side],
    lasted: tuple[float, float] | None,
) -> _Judged:
    """`lasted`: of runs that were short, seconds."""
    wall, loop = _relative(changes["wall"]), _relative(changes["loop"])
    if machine.others is None and _disagree(wall, loop):
        judged = _whoever_used_the_cpus(wall, loop, sides)
    elif machine.left_out and (kept_off := words.without_machine(changes["wall"], changes["loop"])):
        verdict = words.verdict(_kind(loop), loop, sides, machine, lasted) + kept_off
        judged = _Judged("loop", _kind(loop), loop, verdict)
    else:
        judged = _Judged("wall", _kind(wall), wall, words.verdict(_kind(wall), wall, sides, machine, lasted))
    if (
        lasted is not None
        and judged.kind in ("slower", "faster")
        and (moved := _clock_alone(changes, rows, judged.total))
    ):
        return dataclasses.replace(judged, kind="unknown", verdict=words.clock_alone(moved, lasted))
    return judged


def _whoever_used_the_cpus(wall: Relative, loop: Relative, sides: tuple[Side, Side]) -> _Judged:
    """What can be said without knowing whether the time off the CPUs is the machine's doing or the loop's own."""
    kind = _kind(wall)
    if kind != _kind(loop) or kind not in ("slower", "faster"):
        return _Judged("wall", "unknown", wall, words.unknown_machine(wall, loop))
    return _the_smaller(kind, wall, loop, sides)


def _by_far(
    changes: dict[str, Change], machine: likeness.Machine, kept_off: tuple[float, float], sides: tuple[Side, Side]
) -> _Judged | None:
    """What a busy machine cannot have done, of runs that it kept off the CPUs for too long (`kept_off`: shares).

    It makes a run longer, its own work and its workers' too, and nobody knows by how much. So only this: that the run
    which it hindered more is the faster one nevertheless, by more than it can have hindered the other.
    """
    wall, loop = _relative(changes["wall"]), _relative(changes["loop"])
    kind = _kind(wall)
    if machine.others is None or kind != _kind(loop) or kind not in ("slower", "faster"):
        return None
    slow, fast = (1, 0) if kind == "slower" else (0, 1)
    if kept_off[slow] >= limit("compare_kept_off") or kept_off[slow] > kept_off[fast]:
        return None
    if machine.others[slow] - machine.others[fast] >= limit("own_threads_cpus"):
        return None
    allowed = math.log1p(limit("compare_machine_state")) - math.log1p(-kept_off[slow])
    wall, loop = _widened(wall, allowed), _widened(loop, allowed)
    return _the_smaller(kind, wall, loop, sides) if _kind(wall) == _kind(loop) == kind else None


def _widened(relative: Relative, allowed: float) -> Relative:
    """By a logarithm, to both sides."""
    low, high = (math.log1p(max(bound, _TINY_MS - 1)) for bound in relative[1:])
    return relative[0], math.expm1(low - allowed), math.expm1(high + allowed)


def _the_smaller(kind: Kind, wall: Relative, loop: Relative, sides: tuple[Side, Side]) -> _Judged:
    """Which of the two it is matters little where both say the same: the smaller, and no surer than either."""
    smaller = abs(math.log1p(loop[0])) < abs(math.log1p(wall[0]))
    relative = loop[0] if smaller else wall[0], min(wall[1], loop[1]), max(wall[2], loop[2])
    return _Judged("loop" if smaller else "wall", kind, relative, words.at_least(kind, relative, (wall, loop), sides))


def _side(runs: Sequence[Run], steps: Sequence[Sample], name: str) -> Side:
    beside = ranks(runs) if len(runs) > 1 else None
    lead = runs[straggler(runs)] if beside is not None else runs[0]
    verdict = lead.judged.verdict
    finding = next((f for f in lead.judged.findings if f.id == verdict.finding), None)
    medians = [m for run in runs if not math.isnan(m := run.wall_ms_quantile(0.5))]
    return Side(
        path=name,
        name=lead.meta.get("name", "")[:_LONGEST_NAME],
        started=lead.meta.get("started", ""),
        label=finding.slug if finding is not None else verdict.text.partition(":")[0],
        steps=min(s.steps for s in steps),
        left_out=max(s.left_out for s in steps),
        steps_per_row=max(s.steps_per_row for s in steps),
        median_ms=statistics.median(medians) if medians else None,
        ranks=len(runs),
        straggler=beside.straggler if beside is not None else None,
        stragglers=beside.stragglers if beside is not None else (),
    )


def _over_ranks(each: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    """Before and after, their means over the ranks."""
    before: Floats = np.mean([a for a, _ in each], axis=0)
    after: Floats = np.mean([b for _, b in each], axis=0)
    return before, after


def _rank(number: int, changes: dict[str, Change], causes: Sequence[str], total: str) -> RankChange:
    return RankChange(number, changes[total], max((changes[c] for c in causes), key=lambda c: abs(c.difference)))


def _why_not(
    runs: Sequence[tuple[Run, Run]],
    steps: Sequence[tuple[Sample, Sample]],
    numbers: Sequence[int],
    causes: Sequence[str],
) -> str:
    """Why there is nothing to be said; "" when there is."""
    for number, (before, after), (a, b) in zip(numbers, runs, steps, strict=True):
        why = _why_not_one(before, after, a, b, causes)
        if why:
            return f"rank {number}: {why}" if len(runs) > 1 else why
    return ""


def _why_not_one(before: Run, after: Run, a: Sample, b: Sample, causes: Sequence[str]) -> str:
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
    if not any(a.mean(name) > 0 and b.mean(name) > 0 for name in causes):
        return "these are different loops: no cause has time in both"
    return ""


_MOST_LOG = 600.0  # a larger one overflows, and is of a file that no run made


def _changes(
    columns: Sequence[str], means: tuple[Floats, Floats], drawn: tuple[Floats, Floats], between_runs: float
) -> dict[str, Change]:
    found = {}
    for i, name in enumerate(columns):
        before, after = float(means[0][i]), float(means[1][i])
        spread = between_runs * max(before, after)
        if name in ("wall", "loop") and min(before, after) > _TINY_MS:
            low, high = ratio_interval(drawn[0][:, i], drawn[1][:, i], math.log(after / before), between_runs)
            low, high = (before * math.expm1(min(bound, _MOST_LOG)) for bound in (low, high))
        else:  # a cause may have no time at all
            low, high = interval(drawn[0][:, i], drawn[1][:, i], after - before, spread)
        found[name] = Change(name.removeprefix("phase ").removeprefix("idle "), before, after, low, high)
    return found


def _relative(total: Change) -> Relative:
    base = max(total.before, _TINY_MS)
    return total.difference / base, total.low / base, total.high / base


def _with_interval(change: Change, relative: Relative) -> Change:
    return dataclasses.replace(change, low=change.before * relative[1], high=change.before * relative[2])


def _clock_alone(changes: dict[str, Change], rows: Rows, total: str) -> Sequence[Change]:
    """What changed, where that can be another clock or neighbour alone: most of the work on the CPU, which takes longer
    or less by no more than they can do. () where it cannot."""
    on_the_cpu = [row_name(row) for row in rows if set(row) <= set(_ON_THE_CPU)]
    work = [c for name in on_the_cpu if (c := changes[name]).before or c.after]
    moved = [c for c in work if c.told] or work
    (before, after), (moved_before, moved_after) = _sums(work), _sums(moved)
    if min(before, after) <= _TINY_MS or abs(math.log(after / before)) > math.log1p(limit("compare_machine_state")):
        return ()
    if min(moved_before / before, moved_after / after) < limit("most_share"):
        return ()
    apart = (*on_the_cpu, *(MACHINE if total == "loop" else ()))
    elsewhere = [changes[name] for name in map(row_name, rows) if name not in apart]
    others = sum(abs(c.difference) for c in elsewhere if c.told)
    return moved if others <= limit("warn_share") * abs(after - before) else ()


def _sums(changes: Sequence[Change]) -> tuple[float, float]:
    return sum(c.before for c in changes), sum(c.after for c in changes)


def _kind(relative: Relative) -> Kind:
    low, high = (math.log1p(max(bound, _TINY_MS - 1)) for bound in relative[1:])
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


def _devices(changes: dict[str, Change], causes: Sequence[str]) -> tuple[Change, ...]:
    """Busy, idle, and what it idled for, the largest difference first."""
    idle = _largest_first(changes[f"idle {name}"] for name in causes)
    return (changes["device busy"], changes["device idle"], *idle)


def _findings(before: Sequence[Run], after: Sequence[Run]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Gone, and new; of any rank."""
    a, b = (
        {f.id: f"{f.id} {f.slug}" for run in runs for f in run.findings if f.severity != "info"}
        for runs in (before, after)
    )
    return tuple(a[id] for id in a if id not in b), tuple(b[id] for id in b if id not in a)
