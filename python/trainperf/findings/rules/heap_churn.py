"""TP603: malloc returns memory to the OS in every step, and faults it back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from trainperf.findings.facts import plural, size
from trainperf.findings.model import Abstained, Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.runfile.records import HostReading

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


class HeapChurn:
    id = "TP603"
    slug = "heap-churn"
    limits = Limits(limit("warn_share"), limit("critical_share"))
    needs: tuple[str, ...] = ()

    def check(self, facts: Facts) -> Outcome:
        if facts.run.feeds_device:
            return None  # what the host loses is no loss while the device has work
        if facts.of_trace:
            return Abstained(self.id, self.slug, "a trace has no page faults")
        seen = _churn(facts)
        if isinstance(seen, str):
            return Abstained(self.id, self.slug, seen)
        compute = facts.cells("compute")
        work = sum(compute.values())
        if facts.loop_share(work) < limit("half_share"):
            return None
        page_ns = facts.number("page_fault_ns")
        share = min(seen.faults_per_s * page_ns / 1e9, seen.kernel_share)
        cost = min(round(share * facts.wall_ns), work)
        severity = facts.grade(cost, self.limits)
        if severity is None:
            return None
        step_s = facts.wall_ns / facts.steps / 1e9
        faults = seen.faults_per_s * step_s
        taken = faults * seen.page_bytes
        if seen.returned_bytes < limit("returned_share") * taken * min(1.0, seen.longest_s / step_s):
            why = (
                f"{plural(round(faults), 'page fault')} a step, but memory was not seen to go back to the kernel: "
                "mapped files, shared batches or a fork may be why"
            )
            return Abstained(self.id, self.slug, why)
        pad = max(_LEAST_PAD, 1 << (round(taken) - 1).bit_length())
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="compute",
            claims={cell: ns * cost // work for cell, ns in compute.items()},
            title="malloc returns memory to the OS and faults it back in every step",
            confidence=facts.confidence(tier="pages times the cost of one"),
            evidence=(
                f"{facts.step_thread_name} takes {plural(round(faults), 'page')} ({size(taken)}) a step from the "
                f"kernel, which clears each: {page_ns / 1000:.2g} us a page, measured as the watch began",
                f"{seen.kernel_share:.0%} of the time is all that the kernel does for this thread: it is no more",
                f"private memory shrank by {size(seen.returned_bytes)} within a second (median of "
                f"{plural(seen.seconds, 'second')}, looked at several times in each)",
                "the cost is an upper bound of what is saved: in trials 50% to 95% of it was",
            ),
            who=(facts.step_thread_name,),
            why=f"what {facts.step_thread_name} frees is given back to the kernel, and the next step needs it again",
            fix=facts.command(
                f"MALLOC_TRIM_THRESHOLD_={_NO_TRIM} MALLOC_MMAP_THRESHOLD_={_MOST_MMAP} MALLOC_TOP_PAD_={pad}"
            )
            + "  # glibc's malloc reads them as Python starts",
            will_not_help="MALLOC_TRIM_THRESHOLD_ alone: more tensors are then mapped anew each time; jemalloc as it "
            "comes: it gives back large blocks at once; a faster disk or more memory",
        )


def _churn(facts: Facts) -> _Churn | str:
    """Or why it is not known."""
    if facts.run.schema_version < _OLD:
        return "the run was written before page faults were read"
    page_bytes = int(facts.number("page_bytes"))
    if not facts.number("page_fault_ns") or not page_bytes:
        return "what a page fault costs could not be measured"
    table = facts.run.steps
    start = int(table.start_ns[0]) + round(limit("heap_warm_up_s") * 1e9)
    end = int(table.start_ns[-1] + table.wall_ns[-1])
    within = [h for h in facts.run.host if start <= h.at_ns <= end]
    # After a change of the training thread its count starts anew.
    pairs = [(a, b) for a, b in pairwise(within) if _known(a) and _known(b) and b.faults - a.faults >= 0]
    if len(pairs) < limit("heap_min_seconds"):
        if len(within) > limit("heap_min_seconds") and not any(map(_known, within)):
            return "the kernel told no page faults of the training thread"
        return f"page faults of {plural(len(pairs), 'second')} after the first are too few: run longer"
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
