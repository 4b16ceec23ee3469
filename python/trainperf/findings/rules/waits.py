"""TP201 to TP204 and TP301: the training thread waits for the GIL, for an object's lock or a stop of all threads, or
sleeps in the loop: in a lock, a queue, a file, a socket, a child process, time.sleep."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trainperf.findings import children, cpus, frames, loaders
from trainperf.findings.cpus import usable_cpus
from trainperf.findings.frames import is_other_library, is_stdlib_file, is_the_loops, is_users, short_path
from trainperf.findings.framework import in_told_hook
from trainperf.findings.model import (
    Affected,
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
from trainperf.findings.own_code import beside_saves
from trainperf.findings.places import Holder, Spot, body_of_thread, function_name, said_thread
from trainperf.findings.rule import PURE_LOSS, WARNS, rule
from trainperf.findings.text import Bytes, Count, Names, Ns, Number, Share
from trainperf.findings.thresholds import limit
from trainperf.findings.waits import RANKS, Asleep, asleep, handover, writes
from trainperf.runfile.schema import count, described

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.places import Beside
    from trainperf.runfile import Detail, Loader, Thread

_MOST_TOLD = 3

# A thread that runs Python gives the GIL up when asked, after sys.getswitchinterval(); a C call need not. So waits for
# the former last this long, or longer where it lacks a CPU; for the latter what is left of the call: anything.
_SWITCH_INTERVAL_NS = 5_000_000
_SHORTEST, _LONGEST = 0.98 * _SWITCH_INTERVAL_NS, 1.1 * _SWITCH_INTERVAL_NS


@rule("TP201", "gil-hog", WARNS, needs=("gil_waits",))
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


@rule("TP202", "gil-many", WARNS, needs=("gil_waits",))
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
        claim=Claim("gil_wait", waits.claims),
        params={
            **waits.params(facts, waits.holders),
            **device_waits(facts),
            "holders": tuple(_row(facts, group) for group in top),
            "holders_count": Count(len(waits.holders)),
            **_names([h for h, *_ in top]),
            "rest": Count(rest) if rest else None,
            "function": function_name(spot),
            "at": facts.at(spot),
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
    holders: tuple[Holder, ...]  # costliest first
    hog: bool  # the first of them causes most of it
    in_fetch: bool  # most of it where the training thread makes the batches itself: workers would not wait there

    def params(self, facts: Facts, holders: Sequence[Holder]) -> Params:
        of = holders if self.hog else self.holders
        waits = sum(h.waits for h in of)
        return {
            "losing": Count(facts.run.steps_with("gil_wait")),  # steps that lose 10 % or more
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
    if facts.grade(ns, limits) is None:
        return None
    holders = tuple(facts.holders())
    hog = bool(holders) and holders[0].share >= limit("hog_share")
    in_fetch = sum(of for (phase, _), of in claims.items() if phase == "fetch") >= limit("most_share") * ns
    trains = [v for v in facts.run.loaders.values() if not loaders.only_validates(v)]
    in_workers = sum(v.fetches.count for v in trains if loaders.num_workers(v))
    by_itself = sum(v.fetches.count for v in trains if not loaders.num_workers(v)) > in_workers
    return _Waits(claims, ns, holders, hog, in_fetch and by_itself)


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
    if holder.spot is None or holder.second is None:
        return facts.at(holder.spot)
    shares = {"share": Share(holder.spot.share), "second_share": Share(holder.second.share)}
    return Said("in_two", {**shares, "place": facts.label(holder.spot), "second": facts.label(holder.second)})


def device_waits(facts: Facts) -> Params:
    """Whom the device waited for, as its calls tell; empty without a device, or where none waited."""
    holders = facts.holders(kind="idle_gil_wait")
    if facts.gpu is None or not holders:
        return {}
    top = holders[0]
    return {
        "device_wait": Ns(sum(h.ns for h in holders) * facts.gpu.idle_scale("gil_wait") / facts.steps),
        "device_holder": top.said,
        "device_share": None if top.share >= limit("hog_share") else Share(top.share),
        "device_at": facts.at(top.spot),
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


# -- free-threaded Pythons: all threads are stopped, or the training thread waits for the lock of an object

# Functions that stop all threads, besides the garbage collector, by their names: a tracer is set.
_TRACERS: Final = frozenset({"settrace", "setprofile", "settrace_all_threads", "setprofile_all_threads", "set_events"})


@rule("TP203", "stop-the-world", PURE_LOSS, needs=("interpreter_waits",))
def stop_the_world(facts: Facts, limits: Limits) -> Outcome:
    claims = facts.cells("stop_the_world")
    cost = sum(claims.values())
    if facts.grade(cost, limits) is None:
        return None
    stoppers = facts.holders(kind="stop_the_world")[:_MOST_TOLD]
    top = stoppers[0] if stoppers else None
    pauses = sum(d.count for d in facts.run.detail_totals("stop_the_world"))
    spot = top.spot if top is not None else None
    return Diagnosis(
        variant="unread" if top is None else "traces" if _sets_tracers(facts) else "collects",
        claim=Claim("stop_the_world", claims),
        params={
            "stopper": top.said if top is not None else None,
            "at": facts.at(spot),
            "pauses": Count(pauses) if pauses else None,
            "pause": Ns(cost / pauses) if pauses else None,
            "stoppers": tuple(
                {
                    "name": of.said,
                    "share": Share(of.share),
                    "at": facts.at(of.spot),
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


@rule("TP204", "object-lock", WARNS, needs=("interpreter_waits",))
def object_lock(facts: Facts, limits: Limits) -> Outcome:
    claims = facts.cells("object_lock")
    cost = sum(claims.values())
    if facts.grade(cost, limits) is None:
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
        claim=Claim("object_lock", claims),
        params={
            "at": facts.at(spot),
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


# -- asleep

_PRODUCED: Final = ("queue", "future", "pipe")  # by threads or processes, of which there may be more
_OF_RANKS: Final = tuple(RANKS.values())
_MANY_BUCKETS: Final = 8
_SMALL: Final = 4 << 20  # bytes of gradients: no buckets are worth it


@rule("TP301", "blocked", WARNS)
def blocked(facts: Facts, limits: Limits) -> Outcome:
    claims = facts.ledger.cells("blocked_io")
    cost = sum(claims.values())
    severity = facts.grade(cost, limits)
    if severity is None:
        return None
    # Of a part of the cause it is not known which steps have it.
    whole = cost >= limit("held_share") * facts.cause_ns("blocked_io")
    affected = facts.affected("blocked_io") if whole else Affected(facts.steps, 1.0)
    sleep = asleep(facts, _unreported(facts, claims), claims)
    feeders = _feeders(facts, cost / affected.steps) if sleep.kind == "queue" else []
    helpers = children.waited_for_in(facts, sleep)
    in_all = affected.steps == facts.steps
    variant = "background_loader" if feeders else _variant(sleep, in_all=in_all)
    first = whole and facts.is_in_first_step("blocked_io")
    more = _more_producers(facts, sleep, helpers) if variant in _PRODUCED else {}
    todo = more.get("todo")
    return Diagnosis(
        variant=variant,
        severity=_graded(severity, sleep, cost, in_all=in_all, first=first),
        claim=Claim("blocked_io", claims),
        params={
            **_where(facts, sleep),
            **children.at_work(facts, helpers),
            **(_background(facts, feeders, cost) if feeders else {}),
            **more,
            **(_exchange(facts, variant, affected, cost) if variant in (*_OF_RANKS, "collective") else {}),
        },
        place=facts.where(sleep.top) or (loaders.dataset_place(feeders[0], facts) if feeders else ""),
        who=(facts.step_thread_name, sleep.who),
        affected=affected,
        sure=_sure(facts, sleep),
        saves=Saves(
            share=_saved(facts, sleep, helpers, stops=isinstance(todo, Said) and "others" in todo.params),
            finds_out=variant in _OF_RANKS or (variant == "collective" and not facts.standing),
        ),
    )


def _saved(facts: Facts, sleep: Asleep, helpers: Sequence[children.Group], *, stops: bool) -> float:
    """`stops`: the advice is to stop other programs."""
    without = _without_cpu(facts, helpers) if stops else 0.0
    return (sleep.spots[0].share if facts.second(sleep.spots) is not None else 1.0) * (without or 1.0)


def _unreported(facts: Facts, claims: Mapping[Cell, int]) -> list[Detail]:
    """The samples asleep, without those of checkpoints, callbacks, and loaders that end."""
    theirs = {*facts.once(beside_saves).details, *loaders.reported_end(facts)}
    in_hook = facts.once(in_told_hook)
    every = facts.samples(phases={phase for phase, _ in claims}, states=["blocked"])
    return [d for d in every if d not in theirs and not in_hook(d.phase, facts.run.stack(d.stack))]


def _variant(sleep: Asleep, *, in_all: bool) -> str:
    if sleep.kind == "queue" and not in_all:
        return "queue_at_times"
    return "written_file" if sleep.kind == "file" and writes(sleep.call) else sleep.kind


def _graded(severity: Severity, sleep: Asleep, cost: int, *, in_all: bool, first: bool) -> Severity:
    """`first`: only the first step sleeps, which may read code from the disk: files, or in no call pages of them."""
    short = not in_all and cost < 1e9 * limit("now_and_then_min_s")
    if short or (first and (sleep.kind == "file" or not sleep.call)):
        return "info"
    if severity == "critical" and sleep.kind in _OF_RANKS and not in_all:
        return "warning"  # gradients are accumulated already: the exchange is in few of the steps
    return severity


def _where(facts: Facts, sleep: Asleep) -> Params:
    top = sleep.top
    return {
        "place": facts.label(top, with_caller=True),
        "share": Share(top.share) if top is not None and facts.second(sleep.spots) is not None else None,
        "unseen": None if top is not None else facts.off("stacks") or Said("no_sample_tells"),
        "call": sleep.call or None,
        "or_pipe": sleep.call in ("read", "write", "readv", "writev"),
        "opened": sleep.call in ("open", "openat"),
        "timed": sleep.timed,
        "samples": Count(sleep.samples),
        "spots": facts.rows(sleep.spots, with_caller=True),
        **sleep.others(facts),
    }


def _sure(facts: Facts, sleep: Asleep) -> Sure:
    """The time is exact."""
    without, unseen = facts.off("run_delay"), facts.off("gil_holds") if not sleep.spots else None
    doubts = (Said("maybe_no_cpu", {"off": without}),) if without else ()
    if unseen:
        return Sure(doubts=(Said("place_off", {"off": unseen}), *doubts), level="medium")
    return Sure(samples=sleep.samples, doubts=doubts)


# -- loaders that other threads read


def _feeders(facts: Facts, wait_ns: float) -> list[Loader]:
    """The slowest first; none where that is too short for such a wait."""
    found = [v for v in facts.run.loaders.values() if v.fetches.off_thread_count]
    longest = max((v.fetches.off_thread_wall_ns / v.fetches.off_thread_count for v in found), default=0)
    if longest < limit("half_share") * wait_ns:
        return []
    return sorted(found, key=lambda v: -v.fetches.off_thread_wall_ns)


def _background(facts: Facts, feeders: Sequence[Loader], cost: int) -> Params:
    main, have = feeders[0], loaders.num_workers(feeders[0])
    usable, computes = usable_cpus(facts.run), loaders.worker_view(main).computes
    need = max(have + 1, math.ceil(have * facts.wall_ns / max(facts.wall_ns - cost, facts.wall_ns // 20)))
    want = min(need, max(usable, have + 1)) if computes and usable else need
    slow = Said("background_slow", {"workers": Count(have)})
    todo = loaders.with_workers(main, want if have else 2 * len(feeders), notes=[slow])
    if have and computes and 0 < usable <= have:
        todo = Said("background_no_room")
    return {
        "todo": todo,
        "dataset": loaders.dataset_name(main),
        "dataset_at": loaders.dataset_place(main, facts) or None,
        "batch": Ns(main.fetches.off_thread_wall_ns / main.fetches.off_thread_count),
    }


# -- threads or processes that make what the loop waits for


def _more_producers(facts: Facts, sleep: Asleep, helpers: Sequence[children.Group]) -> Params:
    """More of those that compute only where there are CPUs for them."""
    wants, used = cpus.demand(facts), cpus.load_in_steps(facts)
    one = helpers[0] if len(helpers) == 1 else None
    work = children.work_of(one)
    of: Params = {"work": work} if work is not None else {}
    more = {"more": Said(f"more_{sleep.kind}"), **of}
    if one is not None and one.waits and work is not None:
        return {"todo": Said("more_of_waiting", more)}
    least, most = cpus.free(wants, used)
    known, computes = used.known and wants.cpus > 0, one is not None and one.computes
    if known and least >= limit("free_cpus"):
        told = {"free": Number(least)} if computes else {"threads": sleep.kind != "pipe"}
        return {"todo": Said("more_if_free", {**more, **told})}
    if not known or most >= limit("free_cpus"):
        return {"todo": Said("more_if_known", {**more, "computes": computes})}
    quota = wants.room != wants.cpus
    room = Said("have_quota", {"cpus": wants.quota, "one": wants.quota == 1}) if quota else None
    params: Params = {"load": used.said, "room": room or Said("have_cpus", {"cpus": Count(wants.cpus)})}
    working, enough = [b for b in sleep.beside if b.works], limit("most_share") * wants.room
    if max(used.threads + used.children, len(working)) < enough and not computes:
        return {**params, "todo": Said("more_if_waiting", more)}
    return {**params, **_no_room(facts, used, working, helpers, of)}


def _no_room(
    facts: Facts, used: cpus.Load, working: Sequence[Beside], helpers: Sequence[children.Group], of: Params
) -> Params:
    """Those that it waits for compute, and no CPU is free."""
    parts = {"threads": used.threads, "child processes": used.children}
    own = {who: n for who, n in parts.items() if n >= limit("own_threads_cpus")} or {"threads": used.threads}
    libraries = "threads" in own and any(b.spot.leaf for b in working)
    # So that the CPUs add up.
    rest = used.own - own.get("threads", 0.0)
    with_who: Params = {
        "used": Number(sum(own.values())),
        "rest": Number(rest) if rest >= cpus.SPEAKS_OF else None,
        "rest_of": Said("rest_of_threads" if "threads" in own else "rest_of_process"),
        "others": Number(used.others) if used.others >= cpus.SPEAKS_OF else None,
    }
    stop: Params = {"others": Number(used.others)} if _without_cpu(facts, helpers) else {}
    return {
        "computing": Said("computing", {"who": Names(own), **with_who}),
        "todo": Said("make_cheaper", {"libraries": libraries, **of, **stop}),
        "no_room": True,
    }


def _without_cpu(facts: Facts, helpers: Sequence[children.Group]) -> float:
    """Share of the wait in which other programs have the CPUs that the awaited processes would compute on; 0.0: little,
    or not known."""
    compete = len(helpers) == 1 and helpers[0].computes and cpus.load_in_steps(facts).others >= limit("competing_cpus")
    share = helpers[0].without_cpu if compete else 0.0
    return share if share >= limit("warn_share") else 0.0


# -- ranks that exchange gradients


def _exchange(facts: Facts, variant: str, affected: Affected, cost: int) -> Params:
    """What they exchange in each step, and how to exchange less."""
    ddp = described(facts.run.meta, "ddp")
    each = (count(of.get("gradient_bytes")) for kind, of in facts.run.objects.values() if kind == "optimizer")
    gradients = count(ddp.get("gradient_bytes")) or sum(each)
    buffers = count(ddp.get("buffer_bytes")) if ddp.get("broadcast_buffers") is True else 0
    known = variant != "collective" or count(ddp.get("bucket_bytes")) > 0  # that DistributedDataParallel does it
    less = Said("no_sync", {"at_times": affected.steps < facts.steps})
    return {
        "known": bool(facts.standing),
        "gradients": Bytes(gradients) if gradients else None,
        "buffers": Bytes(buffers) if buffers else None,
        "rate": Bytes(gradients * affected.steps / (cost / 1e9)),
        "ddp": (less, *_ddp_options(facts, ddp, gradients, buffers)) if known else None,
    }


def _ddp_options(facts: Facts, ddp: Mapping[str, object], gradients: int, buffers: int) -> Iterator[Said]:
    if not count(ddp.get("hooks")):
        yield Said("compress", {"hook": "bf16_compress_hook" if facts.run.feeds_device else "fp16_compress_hook"})
    if buffers >= limit("half_share") * gradients > 0:
        new = ddp.get("buffers_option") == "forward_sync_buffers"
        yield Said("no_buffers", {"option": "forward_sync_buffers" if new else "broadcast_buffers"})
    bucket = count(ddp.get("bucket_bytes"))
    buckets = math.ceil(gradients / bucket) if bucket else 0
    if buckets > _MANY_BUCKETS:
        yield Said("larger_buckets", {"mb": math.ceil(gradients / _MANY_BUCKETS / 2**20), "buckets": buckets})
    elif buckets == 1 and gradients > _SMALL:
        yield Said("smaller_buckets", {"mb": max(1, gradients // 4 // 2**20)})
