"""TP601 and TP603: the process's memory grows, or goes back to the OS in every step and is faulted back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from trainperf.findings.growth import Floats, trend
from trainperf.findings.kept_memory import Keeper, Looks, looks, workers_memory
from trainperf.findings.model import Claim, Diagnosis, Limits, Outcome, Param, Said, Sure, Unsure
from trainperf.findings.rule import rule
from trainperf.findings.text import Bytes, Count, Names, Number, Seconds, Share
from trainperf.findings.thresholds import limit
from trainperf.findings.vocabulary import CAUSES

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.runfile.records import HostReading

_WORK = ("compute", "python", "gpu_wait", "launch")  # what a step makes is made by these


@rule("TP601", "memory-growth", Limits(limit("memory_growth_share"), None))  # of memory, not of time
def memory_growth(facts: Facts, limits: Limits) -> Outcome:
    """Memory grows steadily, step by step: something keeps what each step makes."""
    if facts.of_trace:
        return Unsure("memory_of_trace")
    readings = _of_the_steps(facts)
    if len(readings) < limit("memory_min_readings"):
        return Unsure("memory_few_readings", {"readings": Count(len(readings))})
    # Caches fill and allocators settle in the first steps.
    kept = readings[len(readings) // 4 :]
    seconds = np.array([(h.at_ns - kept[0].at_ns) / 1e9 for h in kept])
    held = np.array([float(h.rss_bytes) for h in kept])
    grows = trend(seconds, held)
    base = float(np.median(held[: max(2, len(held) // 4)]))
    seen = looks(facts)
    keeper = seen.keepers[0] if seen is not None and seen.keepers else None
    # What slows the steps down as well, as hooks do that pile up, grows ever more slowly.
    goes_on = grows.steady or (keeper is not None and keeper.sure and _still_grows(seconds, held, grows.rise))
    if not goes_on or grows.rise < max(limits.warn * base, limit("memory_growth_bytes")):
        return _workers_grow(facts, limits)
    left = max(0.0, facts.number("memory_limit") - held[-1]) / grows.per_second
    grown = float(np.median(held[-max(2, len(held) // 4) :])) / base - 1
    more_work = _works_more(facts, kept[0].at_ns, kept[-1].at_ns) - 1
    variant, sure = _how_sure(facts, keeper, len(kept), grown, more_work)
    each = grows.per_second * facts.wall_ns / facts.steps / 1e9
    params: dict[str, Param] = {
        "each": Bytes(each),
        "before": Bytes(held[0]),
        "after": Bytes(held[-1]),
        "seconds": Number(seconds[-1]),
        "minute": Bytes(grows.per_second * 60),
        "readings": Count(len(kept)),
        "limit": Bytes(facts.number("memory_limit")),
        "left": Seconds(left) if left and variant == "leak" else None,
        "inference": facts.inference,
        "early": variant == "early",
    }
    if seen is not None and keeper is not None:
        params |= _keeps(seen, keeper, each)
    return Diagnosis(
        variant=variant if keeper is None else _kept_variant(keeper),
        severity="info" if variant != "leak" else "critical" if 0 < left < _seconds(facts) else "warning",
        claim=Claim("", by_device=False),
        params=params,
        place=keeper.place if keeper is not None else "",
        who=(facts.step_thread_name,),
        sure=sure,
    )


def _of_the_steps(facts: Facts) -> list[HostReading]:
    """The readings of memory between the first step's start and the last one's end."""
    table = facts.run.steps
    start, end = int(table.start_ns[0]), int(table.start_ns[-1] + table.wall_ns[-1])
    return [h for h in facts.run.host if start <= h.at_ns <= end and h.rss_bytes > 0]


def _seconds(facts: Facts) -> float:
    """From the first step's start to the last one's end."""
    table = facts.run.steps
    return float(table.start_ns[-1] + table.wall_ns[-1] - table.start_ns[0]) / 1e9


def _how_sure(facts: Facts, keeper: Keeper | None, readings: int, grown: float, more_work: float) -> tuple[str, Sure]:
    """Which variant of a growth it is. `grown`, `more_work`: by which part memory and the work of a second rose."""
    count = Count(readings)
    doubt = Said("readings", {"readings": count})
    # What a step makes grows no faster than the work that makes it.
    if keeper is None and more_work >= limit("half_share") * grown:
        return "with_work", Sure(level="low", doubts=(Said("grows_with_work", {"works": Number(more_work + 1)}),))
    if readings >= limit("memory_good_readings") and facts.steps >= limit("critical_min_steps"):
        return "leak", Sure(level="high", doubts=(doubt,))
    if keeper is not None and keeper.sure:
        return "leak", Sure(level="medium", doubts=(doubt,))
    early = Said("grows_early", {"readings": count, "steps": Count(facts.steps)})
    return "early", Sure(level="low", doubts=(early,))


def _still_grows(seconds: Floats, held: Floats, rise: float) -> bool:
    """Whether the second half of the readings has a notable part of the rise."""
    half = len(held) // 2
    return rise > 0 and trend(seconds[half:], held[half:]).rise >= limit("half_share") * rise / 2


def _workers_grow(facts: Facts, limits: Limits) -> Diagnosis | None:
    """Of readings of the workers that ran to the end, the first quarter left out."""
    seen = workers_memory(facts)
    kept = len(seen.seconds) // 4 if seen is not None else 0
    if seen is None or len(seen.seconds) - kept < limit("memory_min_readings"):
        return None
    seconds, held = np.array(seen.seconds[kept:]), np.array(seen.bytes[kept:], dtype=np.float64)
    grows = trend(seconds, held)
    if not grows.steady or grows.rise < max(limits.warn * held[0], limit("memory_growth_bytes")):
        return None
    readings = Count(len(seconds))
    early = bool(seconds[-1] - seconds[0] < limit("memory_good_readings") - 1)
    doubt = Said("grows_early" if early else "readings", {"readings": readings, "steps": Count(facts.steps)})
    return Diagnosis(
        variant="workers",
        severity="info" if early else "warning",
        claim=Claim("", by_device=False),
        params={
            "each": Bytes(grows.per_second * facts.wall_ns / facts.steps / 1e9),
            "before": Bytes(held[0]),
            "after": Bytes(held[-1]),
            "seconds": Number(seconds[-1] - seconds[0]),
            "minute": Bytes(grows.per_second * 60),
            "readings": readings,
            "workers": Count(seen.workers),
            "dataset": seen.dataset or None,
            "text": seen.text or None,
            "early": early,
        },
        place=seen.place,
        who=(facts.step_thread_name,),
        sure=Sure(level="low" if early else "high", doubts=(doubt,)),
    )


def _kept_variant(keeper: Keeper) -> str:
    """By what is to be done."""
    if keeper.kind == "graph":
        return "kept_sum" if "=" in keeper.text and keeper.argument else "kept_chain"
    if keeper.kind == "container" and keeper.holds in ("graphs", "hooks"):
        return f"kept_{keeper.holds}"
    return {"cache": "kept_cache", "array": "kept_array"}.get(keeper.kind, "kept_elements")


def _keeps(seen: Looks, keeper: Keeper, each: float) -> dict[str, Param]:
    """`each`: bytes that memory grows by in a step."""
    short = keeper.argument and f"{keeper.argument}.{'item' if keeper.scalar else 'detach'}()"
    own = f"self.{keeper.name}" if keeper.of == "attribute" else keeper.name
    return {
        "keeper": keeper.said,
        "thing": keeper.thing,
        "kept": Bytes(min(each, keeper.known_bytes / max(1, seen.steps) or each)),
        "held": keeper.held,
        "more": Count(keeper.elements) if keeper.elements and keeper.kind != "array" else None,
        "in_steps": Count(seen.steps),
        "apart": Number(seen.seconds),
        "own": own or keeper.type,
        "function": keeper.function,
        "bounded": keeper.bound is not None,
        "scalar": keeper.scalar,
        "instead": _replaced(keeper.text, keeper.argument, short) if short else None,
        "also": tuple({"what": other.said, "held": other.held} for other in seen.keepers[1:]),
        "objects": Count(seen.objects),
        "pauses": Names(f"{ms:.0f}" for ms in seen.pauses_ms),
    }


def _replaced(text: str, argument: str, by: str) -> str:
    """The last of the text that is the argument."""
    head, _, tail = text.rpartition(argument)
    return f"{head}{by}{tail}"


def _works_more(facts: Facts, start_ns: int, end_ns: int) -> float:
    """How many times as much work (waits left out) the median step of the last quarter of this time is, as of the
    first; 1 where a quarter has no step."""
    table = facts.run.steps
    work = table.causes_ns[:, [CAUSES.index(cause) for cause in _WORK]].sum(axis=1) / table.count
    quarter = (end_ns - start_ns) / 4
    early = work[(table.start_ns >= start_ns) & (table.start_ns < start_ns + quarter)]
    late = work[(table.start_ns >= end_ns - quarter) & (table.start_ns < end_ns)]
    before = float(np.median(early)) if len(early) else 0.0
    return float(np.median(late)) / before if len(late) and before else 1.0


_OLD = 3  # files before this version of the schema have no page faults
_NO_TRIM = 1 << 40  # bytes: more than any heap
_MOST_MMAP = 32 << 20  # bytes: the most that man mallopt allows for M_MMAP_THRESHOLD
_LEAST_PAD = 64 << 20


@dataclass(frozen=True, slots=True)
class _Churn:
    """What the training thread takes from the kernel, in the median second."""

    seconds: int  # that were read
    page_bytes: int
    faults_per_s: float  # but not those of memory that the process keeps from then on
    kernel_share: float  # of the training thread's time: all that the kernel does for it
    returned_bytes: float
    longest_s: float  # the time between two readings


@rule("TP603", "heap-churn", Limits(limit("warn_share"), limit("critical_share")))
def heap_churn(facts: Facts, limits: Limits) -> Outcome:
    if facts.run.feeds_device:
        return None  # what the host loses is no loss while the device has work
    if facts.of_trace:
        return Unsure("heap_of_trace")
    seen = _churn(facts)
    if isinstance(seen, Unsure):
        return seen
    compute = facts.cells("compute")
    work = sum(compute.values())
    if facts.loop_share(work) < limit("half_share"):
        return None
    page_ns = facts.number("page_fault_ns")
    cost = min(round(min(seen.faults_per_s * page_ns / 1e9, seen.kernel_share) * facts.wall_ns), work)
    severity = facts.grade(cost, limits)
    if severity is None:
        return None
    step_s = facts.wall_ns / facts.steps / 1e9
    faults = seen.faults_per_s * step_s
    taken = faults * seen.page_bytes
    if seen.returned_bytes < limit("returned_share") * taken * min(1.0, seen.longest_s / step_s):
        return Unsure("heap_not_returned", {"faults": Count(round(faults))})
    pad = max(_LEAST_PAD, 1 << (round(taken) - 1).bit_length())
    settings = f"MALLOC_TRIM_THRESHOLD_={_NO_TRIM} MALLOC_MMAP_THRESHOLD_={_MOST_MMAP} MALLOC_TOP_PAD_={pad}"
    return Diagnosis(
        variant="returned",
        severity=severity,
        claim=Claim("compute", {cell: ns * cost // work for cell, ns in compute.items()}),
        params={
            "thread_name": facts.step_thread_name,
            "pages": Count(round(faults)),
            "taken": Bytes(taken),
            "page_us": Number(page_ns / 1000),
            "kernel": Share(seen.kernel_share),
            "returned": Bytes(seen.returned_bytes),
            "seconds": Count(seen.seconds),
            "pad": pad,
            "command": facts.command(settings),
        },
        who=(facts.step_thread_name,),
        sure=Sure(tier=Said("by_pages")),
    )


def _churn(facts: Facts) -> _Churn | Unsure:
    if facts.run.schema_version < _OLD:
        return Unsure("heap_old_file")
    page_bytes = int(facts.number("page_bytes"))
    if not facts.number("page_fault_ns") or not page_bytes:
        return Unsure("heap_no_cost")
    table = facts.run.steps
    start = int(table.start_ns[0]) + round(limit("heap_warm_up_s") * 1e9)
    end = int(table.start_ns[-1] + table.wall_ns[-1])
    within = [h for h in facts.run.host if start <= h.at_ns <= end]
    # After a change of the training thread its count starts anew.
    pairs = [(a, b) for a, b in pairwise(within) if _known(a) and _known(b) and b.faults - a.faults >= 0]
    if len(pairs) < limit("heap_min_seconds"):
        if len(within) > limit("heap_min_seconds") and not any(map(_known, within)):
            return Unsure("heap_no_faults")
        return Unsure("heap_few_seconds", {"seconds": Count(len(pairs))})
    kept = _kept_pages([h for h in within if _known(h)], page_bytes)
    seconds = [(b.at_ns - a.at_ns) / 1e9 for a, b in pairs]
    return _Churn(
        seconds=len(pairs),
        page_bytes=page_bytes,
        faults_per_s=median(
            max(0.0, b.faults - a.faults - (kept[b.at_ns] - kept[a.at_ns])) / s
            for (a, b), s in zip(pairs, seconds, strict=True)
        ),
        kernel_share=sum(max(0, b.system_ns - a.system_ns) for a, b in pairs) / 1e9 / sum(seconds),
        returned_bytes=median(b.returned_bytes for _, b in pairs),
        longest_s=max(seconds),
    )


def _kept_pages(readings: Sequence[HostReading], page_bytes: int) -> dict[int, float]:
    """By the time of a reading: what the process had then and in all readings after it."""
    kept: dict[int, float] = {}
    least = math.inf
    for reading in reversed(readings):
        least = min(least, reading.rss_bytes / page_bytes)
        kept[reading.at_ns] = least
    return kept


def _known(reading: HostReading) -> bool:
    return reading.faults >= 0 and reading.returned_bytes >= 0 and reading.rss_bytes >= 0
