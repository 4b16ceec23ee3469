"""TP508: memory of the device is allocated and freed while steps run, or had to be freed to make room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings.facts import ms, plural
from trainperf.findings.model import Limits, Outcome
from trainperf.findings.rule import DeviceRule
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.gpu import Gpu

_EXPANDABLE = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
# An out-of-memory error that a program catches (to find its batch size) fails at first and after each making of room.
_OF_ONE_ERROR = 3
_CALLS = ("alloc", "free", "pinned_alloc", "pinned_free")


class AllocatorChurn(DeviceRule):
    id = "TP508"
    slug = "allocator-churn"
    limits = Limits(limit("rare_warn_share"), limit("critical_share"))
    needs_calls = True

    def look(self, facts: Facts, device: Gpu) -> Outcome:
        idle = facts.ledger.idle(["cuda_alloc"])
        cost = sum(idle.values())
        graded = facts.grade(cost, self.limits)
        allocs, frees = device.calls("alloc"), device.calls("free")
        pinned = device.calls("pinned_alloc", "pinned_free")
        retried = allocs.failed > _OF_ONE_ERROR and allocs.steps > 1 and frees.count > 0
        if graded is None and not (retried and not facts.too_few):
            return None
        lasts = device.late_share(device.column(["cuda_alloc"])) >= self.limits.warn
        spots = facts.call_spots(*_CALLS)
        top = spots[0] if spots else None
        emptied = top is not None and "empty_cache" in top.leaf
        if retried:
            title, why = (
                f"{device.name}'s memory is full: the allocator frees what it kept, and tries again",
                f"{plural(allocs.failed, 'allocation')} failed at first: too little memory, or too fragmented",
            )
            fix = f"# a smaller batch, or less fragmentation:\n{facts.command(_EXPANDABLE)}"
            wont = "torch.cuda.empty_cache(): the allocator does that by itself, and what it frees is allocated again"
        elif emptied:
            title, why = "torch.cuda.empty_cache() is called in the loop", "what it frees is allocated again at once"
            fix, wont = "# remove torch.cuda.empty_cache() from the loop", "a larger GPU: the memory is not short"
        else:
            title, why = (
                "device memory is allocated and freed while steps run",
                "each cudaMalloc and cudaFree stops the host, and cudaFree waits for the device",
            )
            fix = f"{facts.command(_EXPANDABLE)}  # and pad batches to few shapes"
            wont = "torch.cuda.empty_cache(): it makes more of it"
        if not lasts and not retried:
            title += " at the run's start"
        return facts.finding(
            (self.id, self.slug),
            severity=graded if graded is not None and (lasts or retried) else "info",
            cause="cuda_alloc",
            claims=facts.ledger.cells("cuda_alloc") if graded is not None else {},
            idle=idle if graded is not None else {},
            title=title,
            affected=facts.affected_by(device.column(["cuda_alloc"])),
            confidence=facts.confidence(doubts=device.doubts),
            evidence=(
                f"{device.name} idled {ms(cost / facts.steps)} a step for it" if graded is not None else "",
                f"{allocs.count:,} allocations ({allocs.failed} failed) and {frees.count:,} frees of device memory in "
                f"{facts.steps:,} steps",
                f"{pinned.count:,} of pinned host memory" if pinned.count else "",
                "" if lasts or retried else "the run's second half has little of it: a warm-up",
            ),
            who=(facts.step_thread_name,),
            where=facts.where(top),
            why=why + (f"; called by {facts.label(top)}" if top is not None else ""),
            fix=fix,
            will_not_help=wont,
        )
