"""TP102: worker processes cannot make batches as fast as the loop uses them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from trainperf.findings import loaders
from trainperf.findings.cpu_use import usable_cpus
from trainperf.findings.facts import ms, plural
from trainperf.findings.fetch_advice import many_for_a_backward
from trainperf.findings.model import Limits, Outcome
from trainperf.findings.slow_workers import Fetches, slow_workers
from trainperf.findings.thresholds import limit
from trainperf.findings.unlike_workers import unlike_work

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.model import Confidence
    from trainperf.runfile import Loader


def _fetches(found: Sequence[Loader], late: Sequence[Loader], slow_ns: float) -> Iterator[str]:
    """Of `late` also what the fetches took that found a batch ready."""
    starved, waited = sum(map(loaders.starved_count, found)), sum(map(loaders.starved_ns, found))
    total = starved + sum(map(loaders.ready_count, found))
    if starved and sum(v.fetches.ready.get(-1, 0) for v in found) == starved:
        yield f"{total} fetches took {ms(waited / starved)} each; whether a batch was ready was not seen"
    elif starved:
        yield f"{starved} of {total} fetches found no batch ready, and waited {ms(waited / starved)} each"
    ready, took = sum(map(loaders.ready_count, late)), sum(map(loaders.ready_ns, late))
    if ready:
        computes = not starved and all(loaders.worker_view(v).computes for v in late)
        only_just = computes or took >= slow_ns * ready
        got = "took a batch that had only just been made, which took" if only_just else "found a batch ready, and took"
        yield f"{ready} of {total} fetches {got} {ms(took / ready)} each"


class WorkersTooSlow:
    id = "TP102"
    slug = "workers-too-slow"
    limits = Limits(limit("warn_share"), limit("critical_share"))
    needs: tuple[str, ...] = ("hook_dataloader",)

    def check(self, facts: Facts) -> Outcome:
        found = loaders.with_workers_of(facts)
        slow = loaders.slow_delivery_ns(facts)
        late = [v for v in found if loaders.mostly_starved(v, slow)]
        waits = {v.id: loaders.starved_ns(v) + (loaders.ready_ns(v) if v in late else 0) for v in found}
        starved = sum(waits.values())
        count = sum(loaders.starved_count(v) + (loaders.ready_count(v) if v in late else 0) for v in found)
        if not count:
            return None
        gil = sum(v.fetches.gil_wait_ns for v in found if v in late)
        dropped = sum(loaders.told_skipped(facts).values())  # of the same fetches
        claims = loaders.spread(loaders.workers_cells(facts), max(0, starved - min(gil, starved) - dropped))
        cost = sum(claims.values())
        severity = facts.grade(cost, self.limits)
        if severity is None:
            return None
        main = max(found, key=lambda v: waits[v.id])
        have, name = loaders.num_workers(main), loaders.dataset_name(main)
        alike = [
            v for v in found if v is not main and (loaders.num_workers(v), loaders.dataset_name(v)) == (have, name)
        ]
        view = loaders.worker_view(main, *alike)
        cpus = usable_cpus(facts.run)
        total = sum(loaders.starved_count(v) + loaders.ready_count(v) for v in found)
        few, waited = sum(map(loaders.starved_count, found)), sum(map(loaders.starved_ns, found))
        few_are_late = 0 < 2 * few < total and waited >= limit("held_share") * starved
        mine = unlike_work(facts, main, alike) or slow_workers(
            facts, main, view, Fetches(total, few, few_are_late), cost
        )
        known = bool(main.description.get("num_workers_known", True))
        filters = many_for_a_backward(facts, main)
        level, steps = facts.confidence()[0], plural(facts.steps, "step")
        confidence: tuple[Confidence, str]
        if facts.of_trace:
            confidence = ("medium" if level == "high" else level, f"{steps}; what the workers do was not seen")
        else:
            confidence = (level if view.told else "low", f"{steps}, {view.looked}" + ("" if view.told else ": too few"))
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="data_wait",
            claims=claims,
            title=mine.title,
            affected=count,
            confidence=confidence,
            evidence=(
                *_fetches(found, late, slow),
                mine.evidence,
                view.text if not facts.of_trace else "",
                f"{plural(cpus, 'CPU')} usable" if cpus else "",
            ),
            who=(f"{loaders.workers_text(main)} of {name}", facts.step_thread_name),
            where=loaders.dataset_place(main, facts),
            why=mine.why,
            fix=f"{filters}\n{mine.fix}".lstrip()
            if known
            else "DataLoader(..., num_workers=...)  # more than it has now",
            fix_share=mine.saves,
            will_not_help=mine.will_not_help,
            finds_out=mine.finds_out,
        )
