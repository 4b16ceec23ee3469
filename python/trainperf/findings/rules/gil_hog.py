"""TP201: one thread holds the GIL while the training thread waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings import gil
from trainperf.findings.handovers import feeds_the_loop
from trainperf.findings.model import Limits, Outcome
from trainperf.findings.places import body_of_thread, function_name
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts


class GilHog:
    id = "TP201"
    slug = "gil-hog"
    limits = Limits(limit("warn_share"), limit("critical_share"))
    needs: tuple[str, ...] = ("gil_waits",)

    def check(self, facts: Facts) -> Outcome:
        waits = gil.look(facts, self)
        if not isinstance(waits, gil.Waits):
            return waits
        if not waits.hog:
            return None
        hog = waits.holders[0]
        yields = gil.gives_up(facts, hog)
        spot = hog.spot
        what = f"in {facts.label(spot)}" if spot is not None else "in code that could not be read"
        if spot is not None and hog.second is not None:
            what = facts.label_of_two(spot, hog.second, "in ")
        feeds = feeds_the_loop(facts, hog)
        body = body_of_thread(spot) or function_name(spot)
        wont = gil.THREAD_WILL_NOT_HELP if feeds else gil.WILL_NOT_HELP
        if waits.in_fetch and not feeds:
            wont = gil.FETCHES_WILL_NOT_HELP
        phases = sorted(waits.claims.items(), key=lambda kv: -kv[1])[:2]
        return facts.finding(
            (self.id, self.slug),
            severity=waits.severity,
            cause="gil_wait",
            claims=waits.claims,
            title=f"the training thread waits for the GIL, which {hog.name} holds",
            affected=facts.affected("gil_wait"),
            confidence=facts.confidence(
                tier=facts.tier("gil_waits"), samples=None if spot is None else max(hog.waits, 0)
            ),
            evidence=(
                waits.evidence(facts),
                gil.holder_text(facts, hog),
                "it waits in " + " and ".join(f"{cell[0]} ({ns / waits.ns:.0%})" for cell, ns in phases),
                gil.average_text([hog]),
                f"{hog.name} puts into a queue, and the loop takes from one: one process in its place would be as slow"
                if feeds
                else "",
                gil.device_text(facts),
            ),
            who=(hog.name,),
            where=facts.where(spot),
            why=f"{hog.name} holds the GIL {what}",
            fix=(
                f"# run {body} in several processes, as a DataLoader's workers do: threads share one GIL\n"
                "DataLoader(..., num_workers=2)"
                if feeds and not gil.package_that_started(spot)
                else gil.in_a_process(hog)
            )
            + ("\nsys.setswitchinterval(0.0005)  # until then: it gives the GIL up sooner" if yields else ""),
            fix_share=hog.share,  # what others hold remains
            will_not_help=wont
            + ("; sys.setswitchinterval: the C call does not give the GIL up" if yields is False else ""),
        )
