"""TP103: a batch was ready when it was asked for, and still took long to arrive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings import loaders
from trainperf.findings.facts import ms
from trainperf.findings.model import Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts


class ReadyNotDelivered:
    id = "TP103"
    slug = "ready-not-delivered"
    limits = Limits(limit("warn_share"), limit("critical_share"))
    needs: tuple[str, ...] = ("hook_dataloader",)

    def check(self, facts: Facts) -> Outcome:
        found = [v for v in loaders.with_workers_of(facts) if loaders.ready_count(v) > 0]
        slow = loaders.slow_delivery_ns(facts)
        late = [v for v in found if not loaders.mostly_starved(v, slow) and loaders.ready_mean_ns(v) >= slow]
        # Of a slow sampler, whose part is an estimate, what is left is not sure to be the delivery.
        if not late or loaders.sampler_share(facts) >= limit("most_share"):
            return None
        waited = sum(loaders.ready_ns(v) for v in late)
        count = sum(loaders.ready_count(v) for v in late)
        in_fetch = facts.cells("gil_wait", ["fetch"])
        elsewhere = facts.cause_ns("gil_wait") - sum(in_fetch.values())
        # A hog that is in the way everywhere is the GIL rules' to tell, with all of its cost.
        own_gil = facts.grade(elsewhere, self.limits) is None
        gil = min(sum(in_fetch.values()), sum(v.fetches.gil_wait_ns for v in late)) if own_gil else 0
        claims = loaders.spread(in_fetch, gil)
        claims |= loaders.spread(
            loaders.workers_cells(facts), waited - min(waited, sum(v.fetches.gil_wait_ns for v in late))
        )
        severity = facts.grade(sum(claims.values()), self.limits)
        if severity is None:
            return None
        main = max(late, key=loaders.ready_ns)
        holders = facts.holders(["fetch"]) if not facts.off("gil_waits") else []
        pinned = bool(main.description.get("pin_memory"))  # which without a device has no thread
        holder = holders[0] if holders and gil >= limit("delivery_gil_share") * waited else None
        if holder is not None:
            at = f" in {facts.label(holder.spot)}" if holder.spot is not None else ""
            why = f"{holder.name} holds the GIL{at}"
        elif pinned and facts.run.feeds_device:
            why = "the pin-memory thread has not passed it on"
        else:
            why = f"taking a batch of {loaders.dataset_name(main)} out of its queue is slow (large or many tensors)"
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="gil_wait" if gil > limit("half_share") * waited else "data_wait",
            claims=claims,
            title="batches are ready but are not delivered",
            affected=min(facts.steps, count),
            confidence=facts.confidence(tier=facts.tier("gil_waits") if holder is not None else ""),
            evidence=(
                f"{count:,} fetches found a batch ready and still took {ms(waited / count)} each (usual: 1 to 2 ms)",
                f"{ms(gil)} of {ms(waited)} is waiting for the GIL" if gil else "",
                f"pin_memory={pinned}",
            ),
            who=(holder.name if holder is not None else "", facts.step_thread_name),
            where=facts.where(holder.spot) if holder is not None else "",
            why=why,
            fix=(
                "# move that thread's work into a process:\nconcurrent.futures.ProcessPoolExecutor(1).submit(work)"
                if holder is not None
                else "# return fewer, larger tensors per sample; collate into one tensor"
            ),
            will_not_help="more workers or a larger prefetch_factor: batches are ready already",
        )
