"""What two runs differ in besides their times: the machine, the program, what a step is."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainperf.comparison.sample import MACHINE
from trainperf.findings.cpus import cpu_use, usable_cpus
from trainperf.findings.text import plural
from trainperf.findings.thresholds import limit
from trainperf.ranks import ranks_in_words
from trainperf.runfile import RunReader

# meta key -> how it is called
_FACTS = {
    "host": "host",
    "cpus": "number of CPUs",
    "torch_threads": "number of torch threads",
    "torch": "torch",
    "python": "Python",
    "world_size": "number of ranks",
}


def notes_of_all(runs: Sequence[tuple[RunReader, RunReader]], numbers: Sequence[int]) -> Iterator[str]:
    """What holds for all ranks is said once; else of which it does."""
    found: dict[str, list[int]] = {}
    for number, (before, after) in zip(numbers, runs, strict=True):
        for note in notes(before, after):
            found.setdefault(note, []).append(number)
    for note, which in found.items():
        yield f"{ranks_in_words(which)}: {note}" if len(which) < len(runs) else note


def notes(before: RunReader, after: RunReader) -> Iterator[str]:
    """For people: what may be the reason of a difference, or keep one from meaning anything."""
    for key, what in _FACTS.items():
        a, b = before.meta.get(key, ""), after.meta.get(key, "")
        if a and b and a != b:
            yield f"not the same {what}: {a} -> {b}"
    a, b = ("a notebook" if run.is_notebook else run.script for run in (before, after))
    if a and b and a != b:
        yield f"not the same script: {a} -> {b}"
    for which, run, other in (("first", before, after), ("second", after, before)):
        if run.meta.get("source") == "trace" != other.meta.get("source"):
            yield f"the {which} run was read from a trace, which sees other things than a watch"
    sizes = before.batch_size, after.batch_size
    if None not in sizes and sizes[0] != sizes[1]:
        yield f"not the same batch size: {sizes[0]} -> {sizes[1]}: a step is not the same work"
    for which, run in (("first", before), ("second", after)):
        if run.ended == "killed":
            yield f"the {which} run was killed, or still runs"
        elif run.ended == "exception":
            yield f"the {which} run ended by an exception"
        lost = sum(run.dropped.get(key, 0) for key in ("marks", "samples"))
        if lost:
            yield f"{plural(lost, 'event')} of the {which} run {'was' if lost == 1 else 'were'} dropped"


def other_step(before: RunReader, after: RunReader) -> str:
    """Why a step of one is not a step of the other; "" when it seems to be."""
    for field, what in (("backwards", "backward"), ("optimizer_steps", "optimizer step")):
        a, b = _per_step(before, field), _per_step(after, field)
        if max(a, b) > 1.5 * max(min(a, b), 0.5):
            counts = f"{_number(a)} {what}s in the first run, {_number(b)} in the second"
            return f"a step is not the same thing in both: {counts}"
    return ""


def _per_step(run: RunReader, field: str) -> float:
    steps = run.step_count
    return float(getattr(run.steps, field).sum()) / steps if steps else 0.0


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value - round(value)) < 0.05 else f"{value:.1f}"


@dataclass(frozen=True, slots=True)
class Machine:
    """What the machine had to do with the times."""

    between_runs: float  # share by which two runs of one program differ on it, whatever their steps show
    others: tuple[float, float] | None  # CPUs that other processes used in each run; None: not known
    left_out: bool  # time kept off the CPUs tells of the machine, not of the loop
    given: bool = False  # `between_runs` is what the caller said that they differ by


def machine(
    before: RunReader,
    after: RunReader,
    between_runs: float | None = None,
    ranks: Sequence[Mapping[str, float]] = (),
    *,
    short: bool = False,
) -> Machine:
    """`between_runs`: what is known of this machine when it is quiet; None: the usual, which is more of `short` runs.

    `ranks`: CPUs that all ranks of a job used on each host, before and after; the other ranks are no other processes.
    """
    a, b = cpu_use(before), cpu_use(after)
    if ranks and a is not None and b is not None:
        a, b = (
            dataclasses.replace(use, others=max(0.0, use.others - (of_job.get(_host(run), use.own) - use.own)))
            for use, of_job, run in zip((a, b), ranks, (before, after), strict=True)
        )
    usual = limit("compare_between_busy_runs") if short else limit("compare_between_runs")
    quiet = usual if between_runs is None else between_runs
    busy = max(quiet, limit("compare_between_busy_runs"))
    if a is None or b is None:
        return Machine(busy, None, False, given=busy == between_runs)
    others = a.others, b.others
    enough = limit("own_threads_cpus")
    if max(others) < enough:
        return Machine(quiet, others, False, given=between_runs is not None)
    # After each turn of somebody else the caches are cold: what is left of the loop's time is longer, too.
    cpus = max(1, usable_cpus(before), usable_cpus(after))
    busier = max(abs(b.others - a.others) / cpus, abs(_kept_off(after) - _kept_off(before)))
    # A job that uses more CPUs and is kept off them for longer may be what keeps its own loop waiting.
    longer, shorter = (b, a) if _kept_off(after) > _kept_off(before) else (a, b)
    more = longer.own + longer.children - shorter.own - shorter.children
    own_doing = _kept_off(after) != _kept_off(before) and more >= enough
    in_the_way = max(a.others - a.elsewhere, b.others - b.elsewhere) >= enough
    allowed = max(busy, limit("compare_per_busy_machine") * min(1.0, busier))
    return Machine(allowed, others, in_the_way and not own_doing, given=allowed == between_runs)


def machine_of_all(
    runs: Sequence[tuple[RunReader, RunReader]], between_runs: float | None = None, *, short: bool = False
) -> Machine:
    """The busiest of the ranks' machines: a rank that is kept waiting keeps the others waiting."""
    own = [_own_by_host(side) for side in zip(*runs, strict=True)]
    each = [machine(before, after, between_runs, own, short=short) for before, after in runs]
    others = [m.others for m in each if m.others is not None]
    known = (max(a for a, _ in others), max(b for _, b in others)) if len(others) == len(each) else None
    widest = max(each, key=lambda m: m.between_runs)
    return Machine(widest.between_runs, known, any(m.left_out for m in each), widest.given)


def _own_by_host(runs: Sequence[RunReader]) -> dict[str, float]:
    found: dict[str, float] = {}
    for run in runs:
        use = cpu_use(run)
        if use is not None:
            found[_host(run)] = found.get(_host(run), 0.0) + use.own
    return found


def _host(run: RunReader) -> str:
    return run.meta.get("host", "")


def kept_off_too_long(runs: Sequence[tuple[RunReader, RunReader]]) -> str:
    """Why a busy machine lets nothing be said; "" when it does."""
    each = [(which, _kept_off(run)) for pair in runs for which, run in zip(("first", "second"), pair, strict=True)]
    which, share = max(each, key=lambda found: found[1])
    if share < limit("compare_kept_off"):
        return ""
    return f"CPU contention took {share:.0%} of the {which} run's step time"


def kept_off(runs: Sequence[tuple[RunReader, RunReader]]) -> tuple[float, float]:
    """Shares of the first and the second run's steps; of several ranks the largest."""
    return max(_kept_off(a) for a, _ in runs), max(_kept_off(b) for _, b in runs)


def _kept_off(run: RunReader) -> float:
    """Share of the steps."""
    return sum(run.cause_ns(name) for name in MACHINE) / run.wall_ns if run.wall_ns else 0.0
