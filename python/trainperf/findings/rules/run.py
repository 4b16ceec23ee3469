"""TP401 to TP403: a part of the run is slower, it compiles, it is slower than earlier ones."""

from __future__ import annotations

import itertools
import math
import os
import shlex
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trainperf.comparison.bootstrap import draw, ratio_interval, replicates
from trainperf.findings import loaders
from trainperf.findings.cpus import cpu_use, usable_cpus, used_beside
from trainperf.findings.model import Cell, Claim, Diagnosis, Limits, Outcome, Params, Said, Saves, Sure, Unsure
from trainperf.findings.rule import rule
from trainperf.findings.rules.growth import grown
from trainperf.findings.text import Count, Names, Ns, Number, Share, Times
from trainperf.findings.thresholds import limit
from trainperf.history import Past
from trainperf.runfile import HAS_CHECKPOINT, HAS_LOADER_START, HAS_VALIDATION, WARM_UP
from trainperf.runfile.schema import CAUSES, MACHINE

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.runfile import Int64Array, Span

_BINS = 24
_LEAST, _MOST = 0.1, 0.6  # of the run, that is a stretch
_SHUFFLES = 999  # random orders that the steps' own is held against
_SKIP = WARM_UP | HAS_VALIDATION | HAS_CHECKPOINT | HAS_LOADER_START  # slow for a reason of their own
_ON_CPU = ("python", "compute")  # as fast as the CPU is
_HINTED = ("gil_wait", "data_wait", "descheduled", "throttled", "python", "blocked_io", "gpu_wait", "compute")


@dataclass(frozen=True, slots=True)
class _Slow:
    first: int  # rows
    end: int
    inside_ns: float  # median step
    outside_ns: float

    @property
    def ratio(self) -> float:
        return self.inside_ns / self.outside_ns if self.outside_ns else 0.0


def find_slow_part(wall: npt.NDArray[np.float64]) -> _Slow | None:
    """The stretch of 10 to 60 % of the steps that costs most by being slower than the rest, or None.

    Of medians of bins, so that single slow steps do not make one.
    """
    n = len(wall)
    bins = min(_BINS, n // 5)
    if bins < 6:
        return None
    edges = np.linspace(0, n, bins + 1).astype(int)
    medians = np.array([np.median(wall[a:b]) for a, b in itertools.pairwise(edges)])
    ratio = limit("uneven_ratio")
    if medians.max() < ratio * medians.min():  # so mostly it is
        return None
    best: tuple[float, int, int] | None = None
    for i in range(bins):
        for j in range(i + max(1, round(_LEAST * bins)), min(bins, i + int(_MOST * bins)) + 1):
            inside = medians[i:j]
            outside = np.concatenate([medians[:i], medians[j:]])
            base = float(np.median(outside))
            # Nearly every bin inside is slower than nearly every bin outside.
            low = np.percentile(inside, 20)
            if low < ratio * base or low < np.percentile(outside, 90):
                continue
            # Bins that are no slower than the rest count against a stretch, so that its ends are tight.
            gain = float((inside - base * (1 + ratio) / 2).sum())
            if best is None or gain > best[0]:
                best = (gain, i, j)
    if best is None:
        return None
    a, b = int(edges[best[1]]), int(edges[best[2]])
    rest = np.concatenate([wall[:a], wall[b:]])
    return _Slow(a, b, float(np.median(wall[a:b])), float(np.median(rest)))


def by_chance(wall: npt.NDArray[np.float64], slow: _Slow) -> float:
    """How often steps of these lengths, in random order, have a stretch of 10 to 60 % that stands out as much: by the
    ranks of the steps in it, so that single slow steps do not make one. The same for the same steps."""
    n = len(wall)
    edges = np.linspace(0, n, min(_BINS, n // 5) + 1).astype(int)
    starts, ends = np.triu_indices(len(edges), 1)
    lengths = edges[ends] - edges[starts]
    fits = (lengths >= _LEAST * n) & (lengths <= _MOST * n)
    starts, ends, lengths = starts[fits], ends[fits], lengths[fits]
    ranks = np.argsort(np.argsort(wall)) - (n - 1) / 2
    spread = np.sqrt(lengths * (n - lengths))
    size = slow.end - slow.first
    found = ranks[slow.first : slow.end].sum() / np.sqrt(size * (n - size))
    # Hoeffding's bound, which holds for draws without replacement: mostly it says enough.
    if found > 0 and len(starts) * math.exp(-found * found / n) * (1 + _SHUFFLES) < 1:
        return 1 / (1 + _SHUFFLES)
    rng = np.random.default_rng(0)
    as_much = 0
    for _ in range(_SHUFFLES):
        sums = np.concatenate([[0.0], np.cumsum(rng.permutation(ranks))])[edges]
        as_much += bool(((sums[ends] - sums[starts]) / spread).max() >= found)
    return (1 + as_much) / (1 + _SHUFFLES)


def tightened(slow: _Slow, wall: npt.NDArray[np.float64], cause: npt.NDArray[np.float64]) -> _Slow | None:
    """The same stretch with its ends where the cause begins and ends, which is sharper than the steps' length is: other
    things make steps longer or shorter too. None where the cause is in so few of its steps that they are no stretch.
    `cause`: its ns in each step."""
    rest = np.concatenate([cause[: slow.first], cause[slow.end :]])
    over = cause - (cause[slow.first : slow.end].mean() + rest.mean()) / 2
    sums = np.concatenate([[0.0], np.cumsum(over)])  # the stretch of the largest sum: ends at the largest rise
    lowest = np.minimum.accumulate(sums)
    end = int(np.argmax(sums - lowest))
    first = int(np.argmin(sums[: end + 1]))
    shared = min(end, slow.end) - max(first, slow.first)
    inside = (
        shared >= 0.5 * (end - first)
        and cause[first:end].sum() >= limit("held_share") * cause[slow.first : slow.end].sum()
    )
    if (shared < 0.5 * (slow.end - slow.first) and not inside) or end - first == len(wall):
        return slow
    if inside and end - first < _LEAST * len(wall):
        return None
    rest = np.concatenate([wall[:first], wall[end:]])
    found = _Slow(first, end, float(np.median(wall[first:end])), float(np.median(rest)))
    return found if found.ratio >= limit("uneven_ratio") else slow


def _grows(facts: Facts) -> bool:
    """Whether the steps grow by so much that the end of the run is slow because of it."""
    of_run = facts.once(grown)
    return of_run is not None and facts.loop_share(of_run.excess_ns) >= limit("warn_share")


@dataclass(frozen=True, slots=True)
class _Steps:
    """The rows of the step table that are compared, one for each step or for several."""

    index: npt.NDArray[np.int64]
    count: npt.NDArray[np.float64]
    start_ns: npt.NDArray[np.int64]
    wall_ns: npt.NDArray[np.int64]
    causes_ns: npt.NDArray[np.int64]

    @property
    def each_ns(self) -> npt.NDArray[np.float64]:
        return self.wall_ns / self.count

    def ends(self, slow: _Slow) -> dict[str, Count]:
        """The first and the last step of the stretch."""
        last = int(self.index[slow.end - 1] + self.count[slow.end - 1] - 1)
        return {"first": Count(self.index[slow.first]), "last": Count(last)}

    def means(self, slow: _Slow) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Of each cause per step: in the stretch, and in the rest."""
        rest = np.ones(len(self.count), bool)
        rest[slow.first : slow.end] = False
        inside = self.causes_ns[~rest].sum(axis=0) / float(self.count[~rest].sum())
        return inside, self.causes_ns[rest].sum(axis=0) / max(1.0, float(self.count[rest].sum()))


def _compared(facts: Facts) -> _Steps | None:
    table = facts.run.steps
    merged = bool((table.count > 1).any())
    # A merged row's flags are or-ed over its steps, and would leave nothing to look at.
    keep = np.ones(len(table.count), bool) if merged else (table.flags & _SKIP) == 0
    if keep.sum() < limit("uneven_min_steps"):
        return None
    count = table.count[keep].astype(np.float64)
    return _Steps(table.index[keep], count, table.start_ns[keep], table.wall_ns[keep], table.causes_ns[keep])


@rule("TP401", "uneven", Limits(limit("uneven_warn_share"), limit("critical_share")), role="locator")
def uneven(facts: Facts, limits: Limits) -> Outcome:
    if facts.steps < limit("uneven_min_steps"):
        return Unsure("uneven_few_steps", {"several": facts.steps > 1})
    steps = _compared(facts)
    slow = find_slow_part(steps.each_ns) if steps is not None else None
    if steps is None or slow is None or slow.ratio < limit("uneven_ratio"):
        return None
    if _grows(facts) and slow.end >= (1 - _LEAST) * len(steps.count):
        return None  # TP404 reports it
    if by_chance(steps.each_ns, slow) > limit("uneven_chance"):
        return Unsure("uneven_by_chance", steps.ends(slow))
    mean_in, mean_out = steps.means(slow)
    top = int(np.argmax(mean_in - mean_out))
    if CAUSES[top] not in ("compute", "descheduled"):
        tight = tightened(slow, steps.each_ns, steps.causes_ns[:, top] / steps.count)
        if tight is None:
            return None
        slow = tight
    return _may_be_the_machine(steps, slow, CAUSES[top]) or _explained(facts, limits, steps, slow, top)


def _explained(facts: Facts, limits: Limits, steps: _Steps, slow: _Slow, top: int) -> Outcome:
    """`top`: the cause that grows most in the stretch."""
    cause, (mean_in, mean_out) = CAUSES[top], steps.means(slow)
    change = mean_in - mean_out
    steps_in = int(steps.count[slow.first : slow.end].sum())
    excess = int((slow.inside_ns - slow.outside_ns) * steps_in)
    severity = facts.grade(excess, limits)
    if severity is None:
        return None
    if change[top] < limit("uneven_explained") * (slow.inside_ns - slow.outside_ns):
        return Unsure("uneven_unexplained", steps.ends(slow))
    busier = _busier(facts, steps, slow) if cause in _ON_CPU else None
    # Larger inputs, or a busier machine: nothing in the loop is wrong.
    nothing_wrong = busier is not None or cause in ("compute", "gpu_wait", "descheduled")
    share = change[top] / max(1.0, float(change.clip(min=0).sum()))
    # Of what is a part of the difference alone, nobody is told that the rest would go with it.
    mostly = bool(share >= limit("most_share"))
    ends = steps.ends(slow)
    part = _part(ends["first"], ends["last"], int(steps.index[-1] + steps.count[-1]))
    holders = facts.holders() if cause == "gil_wait" and not facts.off("gil_waits") else []
    spot = holders[0].spot if holders else None
    hint = f"uneven_{cause}" if cause in _HINTED else "uneven_other"
    return Diagnosis(
        variant="busier" if busier is not None else "mostly" if mostly else "partly",
        severity="info" if nothing_wrong else severity,
        claim=Claim(
            cause, loaders.spread(facts.cells(cause), min(excess, int(change[top] * steps_in))), by_device=False
        ),
        params={
            **ends,
            **(busier or {}),
            "part": part,
            "ratio": Number(slow.ratio),
            "cause": cause,
            "mostly": mostly,
            "inside": Ns(slow.inside_ns),
            "outside": Ns(slow.outside_ns),
            "share": Share(share),
            "excess": Ns(excess),
            "excess_share": Share(facts.share(excess)),
            "cause_inside": Ns(mean_in[top]),
            "cause_outside": Ns(mean_out[top]),
            "holder": holders[0].said if spot is not None else None,
            "place": facts.label(spot),
            "hint": Said(hint),
        },
        place=facts.where(spot),
        who=(holders[0].name if holders else facts.step_thread_name,),
        affected=steps_in,
        sure=Sure(doubts=(Said("may_be_the_machine"),) if busier is not None else ()),
        saves=Saves(finds_out=True),
        by_others=busier is not None,
        slow_part=part if mostly else None,
    )


def _may_be_the_machine(steps: _Steps, slow: _Slow, cause: str) -> Unsure | None:
    """Of a short stretch: others slow down a CPU's caches and clock for such a time. Not of waits for the GIL: that is
    held by a thread of this process, whatever the machine does."""
    seconds = float(steps.wall_ns[slow.first : slow.end].sum()) / 1e9
    least = limit("uneven_min_s") * (2 if cause in _ON_CPU else 1)
    if cause == "gil_wait" or seconds >= least:
        return None
    return Unsure("uneven_short", {**steps.ends(slow), "seconds": Number(seconds)})


def _busier(facts: Facts, steps: _Steps, slow: _Slow) -> Params | None:
    """Other processes used notably more of the CPUs in that stretch, which may be why what computes there takes longer;
    None where they did not, may have been this one's own, or it takes longer than that explains."""
    used, run = cpu_use(facts.run), facts.run
    if used is None or slow.ratio > limit("shared_cpu_ratio") or facts.number("world_size") > 1:
        return None
    if "children_cpu_after_ns" not in run.meta or used.elsewhere:
        return None
    end_ns = steps.start_ns + steps.wall_ns
    begin, end = int(steps.start_ns[slow.first]), int(end_ns[slow.end - 1])
    inside = used_beside(run, [(begin, end)])
    outside = used_beside(run, [(int(steps.start_ns[0]), begin), (end, int(end_ns[-1]))])
    if inside is None or outside is None:
        return None
    # All that its own used, as if in that stretch.
    others = inside - (used.workers + used.children) * run.watched_ns / (end - begin)
    if others - outside < limit("busier_share") * max(1, usable_cpus(run)):
        return None
    return {"cpus": Number(inside), "cpus_elsewhere": Number(outside)}


def _part(first: int, last: int, total: int) -> Said:
    """ "the first third of the run", or the steps themselves."""
    for share, name in ((1 / 2, "half"), (1 / 3, "third"), (1 / 4, "quarter"), (1 / 5, "fifth"), (1 / 10, "tenth")):
        if abs((last - first + 1) / total - share) < 0.05:
            if first < 0.05 * total:
                return Said("first_part", {"of": name})
            if last >= 0.95 * total:
                return Said("last_part", {"of": name})
    return Said("stretch", {"first": Count(first), "last": Count(last)})


# -- compiling

_SHOWN = 4  # steps that a title lists
# Compiling is no phase and no mechanism of its own: it is these, in the share of its steps that it took. For a CPU the
# thread waits meanwhile because of the compiler's processes; its objects are what the garbage collector then walks.
_MADE_OF = ("python", "compute", "launch", "blocked_io", "gc", "descheduled", "unknown")


@rule("TP402", "compile-warmup", Limits(limit("compile_share"), None), needs=("hook_compile",), role="once")
def compile_warmup(facts: Facts, limits: Limits) -> Outcome:
    """torch.compile compiled during the run. A warm-up is said; compiling again, later or often, is warned of."""
    table = facts.run.steps
    total = int(table.compile_ns.sum())
    if not total or facts.share(total) < limits.warn:
        return None
    rows = table.compile_ns > 0
    spans = facts.run.spans("compile")
    steps = len({s.step for s in spans if s.step >= 0}) or int(rows.sum())
    late = _late(facts, spans)
    late_ns = min(total, sum(s.end_ns - s.start_ns for s in spans if s.step in late))
    often = steps > limit("recompile_steps") and facts.share(total) >= limit("warn_share")
    again = often or (len(late) > 1 and facts.share(late_ns) >= limit("warn_share"))
    claims: dict[Cell, int] = {}
    of_cause: dict[str, int] = {}
    for cause in _MADE_OF:
        column = table.causes_ns[rows, CAUSES.index(cause)].astype(float)
        part = table.compile_ns[rows] / table.wall_ns[rows].clip(min=1)
        of_cause[cause] = int((column * part.clip(max=1)).sum())
        claims |= loaders.spread(facts.cells(cause), of_cause[cause])
    return Diagnosis(
        variant=("often_late" if late else "often") if often else "late" if late else "warm_up",
        severity="warning" if again else "info",
        # Inductor compiles in processes of its own: then the training thread waits, and the time is blocked_io.
        claim=Claim(max(_MADE_OF, key=of_cause.__getitem__), claims, by_device=False),
        params={
            "total": Ns(total),
            "compiled": Count(steps),
            "share": Share(facts.share(total)),
            "first": Count(table.index[rows][0]),
            "late_ns": Ns(late_ns) if late else None,
            "late": Names(f"{s:,}" for s in late[:_SHOWN]),
            "more": Count(len(late) - _SHOWN) if len(late) > _SHOWN else None,
            "several": len(late) > 1,
            "listed": Said("late_steps"),
            "command": facts.command("TORCH_LOGS=recompiles"),
        },
        affected=steps,
        saves=Saves(share=(_after_the_first_ns(spans, total) if often else late_ns) / total),
    )


def _after_the_first_ns(spans: Sequence[Span], total: int) -> int:
    """Without the first step that compiles, as once it has to."""
    first = min((s.step for s in spans if s.step >= 0), default=0)
    return max(0, total - sum(s.end_ns - s.start_ns for s in spans if s.step <= first))


def _late(facts: Facts, spans: Sequence[Span]) -> list[int]:
    """The steps that compiled long after the warm-up; the first validation has a warm-up of its own."""
    table = facts.run.steps
    validates = set(table.index[(table.flags & HAS_VALIDATION) != 0].tolist())
    steps = sorted({s.step for s in spans if s.step >= 0})
    late, seen_validation = [], False
    for before, step in itertools.pairwise(steps):
        first_validation = step in validates and not seen_validation
        seen_validation = seen_validation or step in validates
        if step - before > limit("recompile_gap_steps") and not first_validation:
            late.append(step)
    return late


# -- earlier runs

_CLOCKED = ("compute", "launch", "python")  # what a slower clock makes longer
_TO_SIGMA = 1.4826  # median absolute deviation -> standard deviation, of a normal distribution


@rule("TP403", "slower-than-before", Limits(limit("history_slower"), None))
def slower_than_before(facts: Facts, limits: Limits) -> Outcome:
    """The run is slower than the last ones of its name on this host."""
    text = facts.run.meta.get("history")
    if text is None:
        return None  # a run without a name, or without a folder, has no earlier ones
    known = Past.parse(text)
    size = facts.run.batch_size or 0
    past = [p for p in known if not (p.batch_size and size) or p.batch_size == size]
    name, others = facts.run.meta.get("name", ""), len(known) - len(past)
    least = int(limit("history_min_runs"))
    if len(past) < least:
        return Unsure(
            "history_few_runs",
            {"runs": Count(len(past)), "name": name, "others": Count(others) if others else None, "least": least},
        )
    table = facts.run.steps
    keep = (table.flags & WARM_UP) == 0
    steps = int(table.count[keep].sum())
    if steps < limit("compare_min_steps"):
        return Unsure("history_few_steps", {"steps": Count(steps)})
    now = _Now(
        steps=steps,
        median_ms=facts.run.wall_ms_quantile(0.5),
        mean_ms={c: float(table.causes_ns[keep, i].sum()) / steps / 1e6 for i, c in enumerate(CAUSES)},
        causes_ns=table.causes_ns[keep],
        count=table.count[keep],
    )
    unlike = _is_slower(now, past, limits.warn + _allowance(facts))
    if unlike is not True:
        return unlike or None
    usual = statistics.median(p.median_ms for p in past)
    grown = now.grown(past)
    cause = max(grown, key=lambda c: grown[c])
    last = os.path.join(os.path.dirname(facts.run.path), past[0].file)
    return Diagnosis(
        variant="slower",
        severity="warning",
        claim=Claim(cause),
        params={
            "slower": Share(now.median_ms / usual - 1),
            "runs": Count(len(past)),
            "median": Ns(now.median_ms * 1e6),
            "name": name,
            "earlier": Times(p.median_ms * 1e6 for p in reversed(past)),
            "cause": cause,
            "takes": Ns(now.mean_ms[cause] * 1e6),
            "usually": Ns(statistics.median(p.causes.get(cause, 0.0) for p in past) * 1e6),
            "more": Ns(grown[cause] * 1e6),
            "last_file": shlex.quote(last),
            "this_file": shlex.quote(str(facts.run.path)),
        },
        who=(),
        affected=facts.steps,
    )


@dataclass(frozen=True, slots=True)
class _Now:
    """This run, without its warm-up."""

    steps: int
    median_ms: float
    mean_ms: dict[str, float]  # by cause
    causes_ns: Int64Array
    count: Int64Array

    def grown(self, past: Sequence[Past]) -> dict[str, float]:
        """By cause: what a mean step has more of, in ms."""
        return {c: self.mean_ms[c] - statistics.median(p.causes.get(c, 0.0) for p in past) for c in CAUSES}


def _is_slower(now: _Now, past: Sequence[Past], more: float) -> Unsure | bool:
    # By the typical step, and by the mean without what the machine took: a busy machine alone is not the program.
    loop, loops = _loop(now.mean_ms), [_loop({c: p.causes.get(c, 0.0) for c in CAUSES}) for p in past]
    if not (_slower(now.median_ms, [p.median_ms for p in past], more) and _slower(loop, loops, more)):
        return False
    lasted = min(now.steps * loop / 1e3, *(p.steps * p.mean_ms / 1e3 for p in past))
    short = lasted < limit("compare_long_run")
    if not _told_by_compare(now.causes_ns, now.count, statistics.median(loops), short=short):
        return Unsure("history_varies")
    if short and _clock_alone(now.mean_ms, now.grown(past)):
        return Unsure("history_clock", {"seconds": Number(lasted)})
    return True


def _allowance(facts: Facts) -> float:
    """For a machine that others use now, and may not have used then."""
    use = cpu_use(facts.run)
    if use is None:
        return limit("compare_between_busy_runs")
    return limit("compare_per_busy_machine") * min(1.0, use.others / max(1, usable_cpus(facts.run)))


def _loop(causes: dict[str, float]) -> float:
    return sum(ms for cause, ms in causes.items() if cause not in MACHINE)


def _told_by_compare(causes_ns: Int64Array, count: Int64Array, usual_ms: float, *, short: bool) -> bool:
    """Whether the loop's mean is above the earlier runs' by more than `trainperf compare` allows for chance: its
    bootstrap of blocks, widened by what two runs of one program differ by."""
    columns = [i for i, cause in enumerate(CAUSES) if cause not in MACHINE]
    sums = (causes_ns[:, columns].sum(axis=1) / 1e6).astype(float)[:, None]
    counts = count.astype(float)
    now = float(sums.sum() / counts.sum())
    if min(now, usual_ms) <= 0:
        return False
    drawn = replicates(sums, counts, draw(0))
    between = limit("compare_between_busy_runs" if short else "compare_between_runs")
    usual = np.full_like(drawn[:, 0], usual_ms)
    return ratio_interval(usual, drawn[:, 0], math.log(now / usual_ms), between)[0] > 0


def _clock_alone(mean: dict[str, float], grown: dict[str, float]) -> bool:
    """As compare asks it of short runs: work on the CPU alone takes longer, by no more than a clock can do."""
    now = sum(mean[c] for c in _CLOCKED)
    more = sum(grown[c] for c in _CLOCKED)
    if more <= 0 or now - more <= 0 or now > (1 + limit("compare_machine_state")) * (now - more):
        return False
    others = sum(max(0.0, ms) for c, ms in grown.items() if c not in (*_CLOCKED, *MACHINE))
    return others <= limit("warn_share") * more


def _slower(now: float, before: list[float], more: float) -> bool:
    """Than all of them, and by more than they differ among themselves."""
    usual = statistics.median(before)
    spread = _TO_SIGMA * statistics.median(abs(value - usual) for value in before)
    return now > max(before) and now - usual >= max(3 * spread, more * usual)
