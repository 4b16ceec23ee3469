"""TP203 and TP204, of free-threaded Pythons: all threads are stopped, or the training thread waits for an object's
lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trainperf.findings import frames
from trainperf.findings.model import Claim, Diagnosis, Limits, Outcome, Said, Saves, Sure
from trainperf.findings.places import said_thread
from trainperf.findings.rule import rule
from trainperf.findings.text import Count, Ns, Share
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.runfile import Thread

# Functions that stop all threads, besides the garbage collector, by their names: a tracer is set.
_TRACERS: Final = frozenset({"settrace", "setprofile", "settrace_all_threads", "setprofile_all_threads", "set_events"})
_MOST_TOLD: Final = 3


@rule(
    "TP203", "stop-the-world", Limits(limit("rare_warn_share"), limit("critical_share")), needs=("interpreter_waits",)
)
def stop_the_world(facts: Facts, limits: Limits) -> Outcome:
    claims = facts.cells("stop_the_world")
    cost = sum(claims.values())
    severity = facts.grade(cost, limits)
    if severity is None:
        return None
    stoppers = facts.holders(kind="stop_the_world")[:_MOST_TOLD]
    top = stoppers[0] if stoppers else None
    pauses = sum(d.count for d in facts.run.detail_totals("stop_the_world"))
    spot = top.spot if top is not None else None
    return Diagnosis(
        variant="unread" if top is None else "traces" if _sets_tracers(facts) else "collects",
        severity=severity,
        claim=Claim("stop_the_world", claims),
        params={
            "stopper": top.said if top is not None else None,
            "at": Said("in", {"place": facts.label(spot)}) if spot is not None else None,
            "each": Ns(cost / facts.steps),
            "step": Ns(facts.wall_ns / facts.steps),
            "pauses": Count(pauses) if pauses else None,
            "pause": Ns(cost / pauses) if pauses else None,
            "stoppers": tuple(
                {
                    "name": of.said,
                    "share": Share(of.share),
                    "at": Said("in", {"place": facts.label(of.spot)}) if of.spot is not None else None,
                }
                for of in stoppers
            ),
        },
        place=facts.where(spot),
        who=tuple(of.name for of in stoppers),
        affected=facts.affected("stop_the_world"),
        sure=Sure(samples=None if spot is None else pauses, tier=facts.tier("interpreter_waits")),
        saves=Saves(share=top.share if top is not None else 1.0),
    )


def _sets_tracers(facts: Facts) -> bool:
    """Whether most of it is by calls that set a tracer, which are on the stack; a collection may come anywhere."""
    whole = traced = 0
    for d in facts.run.detail_totals("stop_the_world"):
        names = {frames.short_function(frame.function).rpartition(".")[2] for frame in facts.run.stack(d.stack)[:2]}
        whole += d.ns
        traced += d.ns if names & _TRACERS else 0
    return traced > limit("half_share") * whole


@rule("TP204", "object-lock", Limits(limit("warn_share"), limit("critical_share")), needs=("interpreter_waits",))
def object_lock(facts: Facts, limits: Limits) -> Outcome:
    claims = facts.cells("object_lock")
    cost = sum(claims.values())
    severity = facts.grade(cost, limits)
    if severity is None:
        return None
    details = facts.run.detail_totals("object_lock")
    waits = sum(d.count for d in details)
    spots = facts.spots(details)
    spot = spots[0] if spots else None
    held: dict[Thread, int] = {}
    for d in details:
        if d.thread is not None:
            held[d.thread] = held.get(d.thread, 0) + d.ns
    holders = sorted(held.items(), key=lambda of: -of[1])[:_MOST_TOLD]
    return Diagnosis(
        variant="held" if holders else "unread",
        severity=severity,
        claim=Claim("object_lock", claims),
        params={
            "at": Said("in", {"place": facts.label(spot)}) if spot is not None else None,
            "waits": Count(waits),
            "wait": Ns(cost / max(1, waits)),
            "holders": tuple(
                {"name": said_thread(thread, facts.thread_name(thread)), "share": Share(ns / cost)}
                for thread, ns in holders
            ),
        },
        place=facts.where(spot),
        who=tuple(dict.fromkeys(facts.thread_name(thread) for thread, _ in holders)),
        affected=facts.affected("object_lock"),
        sure=Sure(samples=None if spot is None else waits, tier=facts.tier("interpreter_waits")),
    )
