"""How a comparison is said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from trainperf.comparison.likeness import Machine
from trainperf.comparison.model import Change, Kind, Relative, Side
from trainperf.comparison.sample import Sample
from trainperf.findings.text import plural
from trainperf.findings.thresholds import limit
from trainperf.ranks import ranks_in_words

DEVICES_IN_PART: Final = (
    "what the GPU did is not compared: it was traced in some of the steps only; watch(cuda='full') traces all"
)
_LEAST_MS: Final = 0.005  # less is no time


def verdict(
    kind: Kind,
    relative: Relative,
    sides: tuple[Side, Side],
    machine: Machine,
    lasted: tuple[float, float] | None = None,
) -> str:
    """`lasted`: of runs that were short, seconds."""
    change, low, high = relative
    labels = _labels(sides)
    between = f"{percent(low)} to {percent(high)}"
    if kind == "unknown":
        steps = f"{sides[0].steps:,} and {sides[1].steps:,} steps"
        why = f"too few steps for this much noise ({steps})"
        if lasted is not None:
            why = f"runs of {_seconds(lasted)} are too short for this much noise"
        if machine.between_runs > limit("compare_resolution") and machine.given:
            why = f"--noise says that two runs of one program differ by {machine.between_runs:.0%} here"
        elif machine.between_runs > limit("compare_resolution") and machine.others is not None:
            why = f"the machine was not the same: {_others(*machine.others)}"
        return f"cannot tell: {why}; anything from {between}"
    if kind == "same":
        return f"no difference beyond noise: {percent(change)} ({between}); {labels}"
    return f"{kind} by {abs(change):.0%} ± {points(high - low)}: {labels}"


def _labels(sides: tuple[Side, Side]) -> str:
    before, after = sides[0].label, sides[1].label
    return f"still {after}" if before == after else f"{before} -> {after}"


def at_least(kind: Kind, relative: Relative, both: tuple[Relative, Relative], sides: tuple[Side, Side]) -> str:
    """`both`: with the time that the loop was kept off the CPUs, and without."""
    least = min(abs(relative[1]), abs(relative[2]))
    return (
        f"{kind} by at least {max(least, 0.01):.0%}: {_labels(sides)} ({percent(both[0][0])} with CPU "
        f"contention, {percent(both[1][0])} without it)"
    )


def clock_alone(moved: Sequence[Change], lasted: tuple[float, float]) -> str:
    """`moved`: the causes that changed, all of them work on the CPU."""
    before, after = sum(c.before for c in moved), sum(c.after for c in moved)
    what = " and ".join(c.name for c in moved)
    change = f"{abs(after / before - 1):.0%} {'longer' if after > before else 'less'}"
    return (
        f"cannot tell: {what} per step took {change} and nothing else changed; in runs of {_seconds(lasted)} "
        f"the machine alone can do this (clock, neighbours on the CPU): run each for {limit('compare_long_run'):.0f} s "
        "or more"
    )


def short(lasted: tuple[float, float]) -> str:
    return (
        f"the runs last {_seconds(lasted)}: below {limit('compare_long_run'):.0f} s two runs of one program can differ "
        "by the machine alone"
    )


def _seconds(lasted: tuple[float, float]) -> str:
    return f"{lasted[0]:,.1f} and {lasted[1]:,.1f} s"


def unknown_machine(wall: Relative, loop: Relative) -> str:
    return (
        f"cannot tell: {percent(wall[0])} with CPU contention, {percent(loop[0])} without it, and runs under two "
        "seconds do not show who used the CPUs"
    )


def without_machine(wall: Change, loop: Change) -> str:
    kept_off = wall.before - loop.before, wall.after - loop.after
    if max(kept_off) < _LEAST_MS:
        return ""
    return f" (CPU contention excluded: {_ms(kept_off[0])} -> {_ms(kept_off[1])} ms/step)"


def _ms(value: float) -> str:
    return f"{value:.2g}" if value >= _LEAST_MS else "0"


def too_few(few: Iterable[tuple[str, Sample]], least: int) -> str:
    each = [
        f"the {which} run has {plural(s.steps, 'step')}" + (f" after {s.left_out} of warm-up" if s.left_out else "")
        for which, s in few
    ]
    return f"too few steps: {', '.join(each)}; at least {least} are needed"


def busy(machine: Machine) -> Iterator[str]:
    if machine.others is not None and max(machine.others) >= limit("own_threads_cpus"):
        yield _others(*machine.others)


def stragglers(before: Side, after: Side) -> Iterator[str]:
    if set(before.stragglers) == set(after.stragglers):
        if before.stragglers:
            yield f"the other ranks wait for {ranks_in_words(before.stragglers)}, before and after"
        return
    a, b = (ranks_in_words(side.stragglers) if side.stragglers else "none" for side in (before, after))
    yield f"the other ranks waited for {a} before, and for {b} after"


def _others(before: float, after: float) -> str:
    return f"other processes used {before:.1f} CPUs in the first run and {after:.1f} in the second"


def percent(value: float) -> str:
    return f"{value:+.1%}" if abs(value) < 0.0995 else f"{value:+.0%}"


def points(width: float) -> str:
    """Half an interval, in whole points; never none."""
    half = width / 2 * 100
    return f"{half:.0f}" if half >= 0.95 else "1"
