"""TP105: taking ready batches out of the workers' queue is a notable part of a short step. Said, never warned of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings import loaders
from trainperf.findings.facts import ms
from trainperf.findings.model import Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainperf.findings.facts import Facts
    from trainperf.runfile import Loader


class DeliveryCost:
    id = "TP105"
    slug = "delivery-cost"
    limits = Limits(limit("warn_share"), None)
    needs: tuple[str, ...] = ("hook_dataloader",)

    def check(self, facts: Facts) -> Outcome:
        found = [v for v in loaders.with_workers_of(facts) if loaders.ready_count(v) > 0]
        slow = loaders.slow_delivery_ns(facts)
        found = [v for v in found if not loaders.mostly_starved(v, slow) and loaders.ready_mean_ns(v) < slow]
        spent = sum(loaders.ready_ns(v) for v in found)
        waits = loaders.workers_cells(facts)
        claims = loaders.spread(waits, spent)
        # Where it is most of a notable wait, what starts the workers is the rest of that.
        notable = waits if sum(claims.values()) >= limit("most_share") * sum(waits.values()) else claims
        if facts.grade(sum(notable.values()), self.limits) is None:
            return None
        count = sum(loaders.ready_count(v) for v in found)
        return facts.finding(
            (self.id, self.slug),
            severity="info",
            cause="data_wait",
            claims=claims,
            title="batch deserialization is significant at this step length",
            affected=count,
            confidence=facts.confidence(),
            evidence=(
                f"{count:,} fetches found a batch ready and took {ms(spent / count)} each: "
                "deserialising, not starvation",
            ),
            who=(facts.step_thread_name,),
            why=f"deserialising a ready batch takes {ms(spent / count)}",
            fix=f"# larger batches, or fewer and larger tensors per batch{_without(found, spent / count)}",
            will_not_help="more workers: batches are ready already",
        )


def _without(found: Sequence[Loader], taking_ns: float) -> str:
    """A line of the fix, where workers take much less to make a batch than it takes to get it from them."""
    workers = [w for v in found for w in v.workers]
    batches = sum(v.fetches.count for v in found)
    if not all(loaders.worker_view(v).told for v in found) or any(w.cpu_share is None for w in workers):
        return ""
    making_ns = 1e9 * sum((w.cpu_share or 0.0) * w.seconds for w in workers) / batches
    if making_ns > limit("half_share") * taking_ns:
        return ""
    made = f"to make a batch takes a worker {ms(making_ns)} of CPU; if it waits for nothing, this is faster"
    return f"\nDataLoader(..., num_workers=0)  # {made}"
