"""TP202: several threads take turns with the GIL, and the training thread waits for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings import gil
from trainperf.findings.facts import plural
from trainperf.findings.model import Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts


class GilMany:
    id = "TP202"
    slug = "gil-many"
    limits = Limits(limit("warn_share"), limit("critical_share"))
    needs: tuple[str, ...] = ("gil_waits",)

    def check(self, facts: Facts) -> Outcome:
        waits = gil.look(facts, self)
        if not isinstance(waits, gil.Waits):
            return waits
        if waits.hog:
            return None
        holders = waits.holders
        top = holders[:3]
        first = next((h.spot for h in top if h.spot is not None), None)
        names = [h.name for h in top]
        return facts.finding(
            (self.id, self.slug),
            severity=waits.severity,
            cause="gil_wait",
            claims=waits.claims,
            title=f"the training thread waits for the GIL, shared with {plural(len(holders), 'thread')}"
            if holders
            else "the training thread waits for the GIL",
            affected=facts.affected("gil_wait"),
            confidence=facts.confidence(tier=facts.tier("gil_waits"), samples=sum(h.waits for h in holders)),
            evidence=(
                waits.evidence(facts),
                *(gil.holder_text(facts, h) for h in top),
                gil.average_text(holders),
                gil.device_text(facts),
            ),
            who=names,
            where=facts.where(first),
            why=(
                f"{', '.join(names)} take turns with the GIL"
                + (f", mostly in {facts.label(first)}" if first is not None else "")
                if holders
                else "who held the GIL could not be read"
            ),
            fix="# make the batches in processes, where they wait for no thread; or use fewer threads\n"
            "DataLoader(..., num_workers=2)"
            if waits.in_fetch
            else "# fewer threads, or processes instead:\nconcurrent.futures.ProcessPoolExecutor(2)",
            will_not_help=gil.FETCHES_WILL_NOT_HELP if waits.in_fetch else gil.WILL_NOT_HELP,
        )
