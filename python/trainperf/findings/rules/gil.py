"""TP201 and TP202: the training thread waits for the GIL, which one other thread holds, or several in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainperf.findings import loaders
from trainperf.findings.frames import is_other_library, is_stdlib_file, is_the_loops, is_users, short_path
from trainperf.findings.model import (
    Cell,
    Claim,
    Diagnosis,
    Limits,
    Outcome,
    Params,
    Said,
    Saves,
    Severity,
    Sure,
    Unsure,
)
from trainperf.findings.places import Holder, Spot, body_of_thread, function_name
from trainperf.findings.rule import rule
from trainperf.findings.text import Count, Names, Ns, Share
from trainperf.findings.thresholds import limit
from trainperf.findings.waits import handover

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts

_LIMITS = Limits(limit("warn_share"), limit("critical_share"))
_MOST_TOLD = 3

# A thread that runs Python gives the GIL up when asked, after sys.getswitchinterval(); a C call need not. So waits for
# the former last this long, or longer where it lacks a CPU; for the latter what is left of the call: anything.
_SWITCH_INTERVAL_NS = 5_000_000
_SHORTEST, _LONGEST = 0.98 * _SWITCH_INTERVAL_NS, 1.1 * _SWITCH_INTERVAL_NS


@rule("TP201", "gil-hog", _LIMITS, needs=("gil_waits",))
def gil_hog(facts: Facts, limits: Limits) -> Outcome:
    waits = _look(facts, limits)
    if not isinstance(waits, _Waits) or not waits.hog:
        return waits if isinstance(waits, Unsure) else None
    hog = waits.holders[0]
    spot, yields, feeds = hog.spot, _gives_up(facts, hog), _feeds_the_loop(facts, hog)
    several = feeds and not _package_that_started(spot)
    phases = sorted(waits.claims.items(), key=lambda kv: -kv[1])[:2]
    return Diagnosis(
        variant="feeding" if feeds else "fetching" if waits.in_fetch else "beside",
        severity=waits.severity,
        claim=Claim("gil_wait", waits.claims),
        params={
            **waits.params(facts, [hog]),
            **device_waits(facts),
            "holder": hog.said,
            "at": holder_at(facts, hog) or Said("unread"),
            "phases": Names(f"{cell[0]} ({Share(ns / waits.ns)})" for cell, ns in phases),
            "fix": Said("run_several", {"body": body_of_thread(spot) or function_name(spot)})
            if several
            else in_a_process(hog),
            "yields": yields,
            "keeps": yields is False,
        },
        place=facts.where(spot),
        who=(hog.name,),
        affected=facts.affected("gil_wait"),
        sure=Sure(samples=None if spot is None else max(hog.waits, 0), tier=facts.tier("gil_waits")),
        saves=Saves(share=hog.share),  # what others hold remains
        tells_idle=bool(device_waits(facts)),
    )


@rule("TP202", "gil-many", _LIMITS, needs=("gil_waits",))
def gil_many(facts: Facts, limits: Limits) -> Outcome:
    waits = _look(facts, limits)
    if not isinstance(waits, _Waits) or waits.hog:
        return waits if isinstance(waits, Unsure) else None
    groups = _alike(facts, waits.holders)
    top = groups[:_MOST_TOLD]
    first = next((h for h, *_ in top if h.spot is not None), None)
    spot = first.spot if first is not None else None
    rest = sum(map(len, groups[_MOST_TOLD:]))
    return Diagnosis(
        variant="unread" if not top else "fetching" if waits.in_fetch else "beside",
        severity=waits.severity,
        claim=Claim("gil_wait", waits.claims),
        params={
            **waits.params(facts, waits.holders),
            **device_waits(facts),
            "holders": tuple(_row(facts, group) for group in top),
            "holders_count": Count(len(waits.holders)),
            **_names([h for h, *_ in top]),
            "rest": Count(rest) if rest else None,
            "function": function_name(spot),
            "at": Said("in", {"place": facts.label(spot)}) if spot is not None else None,
        },
        place=facts.where(spot),
        who=tuple(dict.fromkeys(h.name for h, *_ in top)),
        affected=facts.affected("gil_wait"),
        sure=Sure(samples=sum(h.waits for h in waits.holders), tier=facts.tier("gil_waits")),
        tells_idle=bool(device_waits(facts)),
    )


def _names(holders: Sequence[Holder]) -> Params:
    """`named`, `same`: each has a name of its own, or all have one."""
    named = [isinstance(h.said, Said) for h in holders]
    return {
        "names": Names(f"'{h.name}'" if own else h.name for h, own in zip(holders, named, strict=True)),
        "named": all(named) and len(holders) != 1,
        "same": all(named) and len(holders) == 1,
    }


@dataclass(frozen=True, slots=True)
class _Waits:
    """The training thread's waits for the GIL, where they are large enough to speak of."""

    claims: dict[Cell, int]
    ns: int
    severity: Severity
    holders: tuple[Holder, ...]  # costliest first
    hog: bool  # the first of them causes most of it
    in_fetch: bool  # most of it where the training thread makes the batches itself: workers would not wait there

    def params(self, facts: Facts, holders: Sequence[Holder]) -> Params:
        of = holders if self.hog else self.holders
        waits = sum(h.waits for h in of)
        return {
            "each": Ns(self.ns / facts.steps),
            "step": Ns(facts.wall_ns / facts.steps),
            "losing": Count(facts.run.steps_with("gil_wait")),  # steps that lose 10 % or more
            "steps": Count(facts.steps),
            "holders": tuple(_row(facts, [h]) for h in holders),
            "waits": Count(waits) if waits else None,
            "wait": Ns(sum(h.ns for h in of) / waits) if waits else None,
        }


def _look(facts: Facts, limits: Limits) -> _Waits | Unsure | None:
    """Unsure: no tier, or one that does not know who waits. None: too little to speak of."""
    if facts.gil_unmeasured:
        return Unsure("gil_busy_only")
    claims = facts.cells("gil_wait")
    ns = sum(claims.values())
    severity = facts.grade(ns, limits)
    if severity is None:
        return None
    holders = tuple(facts.holders())
    hog = bool(holders) and holders[0].share >= limit("hog_share")
    in_fetch = sum(of for (phase, _), of in claims.items() if phase == "fetch") >= limit("most_share") * ns
    trains = [v for v in facts.run.loaders.values() if not loaders.only_validates(v)]
    in_workers = sum(v.fetches.count for v in trains if loaders.num_workers(v))
    by_itself = sum(v.fetches.count for v in trains if not loaders.num_workers(v)) > in_workers
    return _Waits(claims, ns, severity, holders, hog, in_fetch and by_itself)


def _alike(facts: Facts, holders: Sequence[Holder]) -> list[list[Holder]]:
    """Those of one name and place together, as the threads of a pool are; the costliest first."""
    groups: dict[tuple[str, str], list[Holder]] = {}
    for h in holders:
        groups.setdefault((h.name, facts.label(h.spot) if h.spot is not None else ""), []).append(h)
    return sorted(groups.values(), key=lambda group: -sum(h.share for h in group))


def _row(facts: Facts, alike: Sequence[Holder]) -> Params:
    first, count = alike[0], len(alike)
    name = first.said if count == 1 else Said("named_threads", {"count": Count(count), "name": first.name})
    return {"name": name, "share": Share(sum(h.share for h in alike)), "at": holder_at(facts, first)}


def holder_at(facts: Facts, holder: Holder) -> Said | None:
    if holder.spot is None:
        return None
    if holder.second is None:
        return Said("in", {"place": facts.label(holder.spot)})
    shares = {"share": Share(holder.spot.share), "second_share": Share(holder.second.share)}
    return Said("in_two", {**shares, "place": facts.label(holder.spot), "second": facts.label(holder.second)})


def device_waits(facts: Facts) -> Params:
    """Whom the device waited for, as its calls tell; empty without a device, or where none waited."""
    holders = facts.holders(kind="idle_gil_wait")
    if facts.gpu is None or not holders:
        return {}
    top = holders[0]
    return {
        "device_wait": Ns(sum(h.ns for h in holders) / facts.steps),
        "device_holder": top.said,
        "device_share": None if top.share >= limit("hog_share") else Share(top.share),
        "device_at": Said("in", {"place": facts.label(top.spot)}) if top.spot is not None else None,
    }


def in_a_process(holder: Holder | None) -> Said:
    """A fix: the holder's function, or all that its thread does where that is not one, beside training's GIL."""
    spot = holder.spot if holder is not None else None
    if package := _package_that_started(spot):
        return Said("run_package", {"package": package})
    function, body = function_name(spot), body_of_thread(spot)
    several = holder is not None and holder.second is not None
    if not body or not (several or body.rpartition(".")[2] == function):
        if spot is not None and spot.frame.function.endswith("<lambda>"):  # it can be sent to no process
            return Said("run_lambda")
        return Said("run_function", {"function": function})
    of_class, _, name = body.rpartition(".")
    if name != "run":
        return Said("run_body", {"body": body, "name": name})
    # Without its class before CPython 3.11.
    return Said("run_class", {"body": body if of_class else Said("that_thread"), "name": of_class or "..."})


def _feeds_the_loop(facts: Facts, holder: Holder) -> bool:
    """Whether a thread puts into a queue, and the loop takes from one. A DataLoader's own, which its pin-memory thread
    fills, is none of these.

    By samples in any state: who holds the GIL is in the way in the queue as well.
    """
    stacks = (facts.run.stack(d.stack) for d in facts.samples())
    if holder.thread is None or not any(handover(s) == "queue" and is_the_loops(s) for s in stacks):
        return False
    return any(
        d.thread is not None and d.thread.id == holder.thread.id and handover(facts.run.stack(d.stack)) == "full_queue"
        for kind in ("gil_wait", "hold", "beside")
        for d in facts.run.detail_totals(kind)
    )


def _package_that_started(spot: Spot | None) -> str:
    """The package that started the thread for itself: "tensorboard"; "" for none, or PyTorch and its frameworks."""
    if spot is None or any(is_users(f, spot.frames) for f in spot.frames):
        return ""
    outermost = next((f.file for f in reversed(spot.frames) if not is_stdlib_file(f.file)), "")
    return short_path(outermost).replace("\\", "/").partition("/")[0] if is_other_library(outermost) else ""


def _gives_up(facts: Facts, hog: Holder) -> bool | None:
    """Whether the hog gives the GIL up when it is asked to (Python), or holds it to the end of a C call; None: unclear.

    Only waits that are timed exactly can tell.
    """
    if facts.tier("gil_waits") != "exact":
        return None
    waits = _single_waits(facts, hog)
    if not waits:
        return None
    # Measured with two threads on two busy cores. Python: 50 to 75 % of the waits last an interval, none is shorter;
    # json.dumps of 10 ms: 5 %, and a third is shorter.
    shorter = sum(ns < _SHORTEST for ns in waits) / len(waits)
    an_interval = sum(_SHORTEST <= ns <= _LONGEST for ns in waits) / len(waits)
    longer_ns = sum(ns for ns in waits if ns > _LONGEST)
    if an_interval >= 0.4 and shorter <= 0.1:
        return True
    return False if longer_ns > 0.25 * sum(waits) and an_interval < 0.2 else None


def _single_waits(facts: Facts, hog: Holder) -> list[int]:
    """Of the steps that keep their timeline. A wait's slices (each <= 5 ms) follow each other without a gap."""
    waits: list[int] = []
    for step in facts.run.kept_steps.index.tolist():
        end = -1
        for s in facts.run.segments(step):
            if s.mechanism != "gil_wait" or s.thread != hog.thread:
                continue
            if s.start_ns == end:
                waits[-1] += s.end_ns - s.start_ns
            else:
                waits.append(s.end_ns - s.start_ns)
            end = s.end_ns
    return waits
