"""TP102, TP103 and TP105: worker processes make batches too slowly, or batches that are ready arrive slowly."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainperf.findings import cpus, frames, loaders, places
from trainperf.findings.cpus import in_force, storage, usable_cpus, workers_cpus
from trainperf.findings.framework import arguments, own_loader
from trainperf.findings.model import Claim, Diagnosis, Limits, Outcome, Params, Said, Saves, Sure
from trainperf.findings.rule import WARNS, rule
from trainperf.findings.rules.waits import in_a_process
from trainperf.findings.text import Count, Names, Ns, Share
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.loaders import Inside, WorkerView
    from trainperf.findings.places import Holder
    from trainperf.runfile import Awaited, Loader

_NEEDS = ("hook_dataloader",)
_TAKE_ALL = ("all_cpus", "partly_no_room")  # of the CPUs, with the training thread
_PINS = re.compile(r"[/\\]torch[/\\]utils[/\\]data[/\\]_utils[/\\]pin_memory\.py$")  # the thread that pins
_MOST_AHEAD = 32  # batches by worker: each lies in memory

# -- workers that make batches too slowly


@rule("TP102", "workers-too-slow", WARNS, needs=_NEEDS)
def workers_too_slow(facts: Facts, limits: Limits) -> Outcome:
    found = loaders.with_workers_of(facts)
    fetches = _Fetches.of(facts, found)
    if not fetches.slow_count:
        return None
    gil = min(sum(v.fetches.gil_wait_ns for v in fetches.late), fetches.slow_ns)
    dropped = sum(loaders.told_skipped(facts).values())  # of the same fetches
    claims = loaders.spread(loaders.workers_cells(facts), max(0, fetches.slow_ns - gil - dropped))
    cost = sum(claims.values())
    severity = facts.grade(cost, limits)
    if severity is None:
        return None
    main = max(found, key=fetches.slow_ns_of)
    have, name = loaders.num_workers(main), loaders.dataset_name(main)
    alike = [v for v in found if v is not main and (loaders.num_workers(v), loaders.dataset_name(v)) == (have, name)]
    view = loaders.worker_view(main, *alike)
    crowded = _crowded_by_workers(facts)
    # Workers that all run, and get a CPU in turns, are late in turns: their work may be alike.
    unlike = None if crowded and view.all_run else _unlike_work(facts, main, alike)
    why = unlike or _slow(facts, main, view, fetches, cost)
    # Cheaper samples shorten the training thread's waits for a CPU, too.
    kept_off = facts.waits_for_cpu() if crowded and why.variant in _TAKE_ALL else {}
    inside = loaders.inside(facts, (main, *alike))
    cheaper = loaders.cheaper_call(((v.calls, v.count) for v in inside.lines), inside.busy)
    moved = storage(facts)
    return Diagnosis(
        variant=why.variant,
        severity=facts.grade(cost + sum(kept_off.values()), limits) or severity,
        claim=Claim("data_wait", {**claims, **kept_off}),
        params={
            **_loader(facts, main),
            **fetches.params(),
            "further": fetches.few_are_late or 2 * fetches.empty < fetches.total,
            **({} if facts.of_trace else _seen(view)),
            **_inside(facts, inside),
            "waits_by": inside.waits_by() or None,
            "cheaper": cheaper,
            "kept_off": Ns(sum(kept_off.values()) / facts.steps) if kept_off else None,
            **moved,
            **loaders.reads(facts, main, cheaper, moved),
            **why.params,
        },
        place=why.place or _place(facts, inside) or loaders.dataset_place(main, facts),
        who=(f"{loaders.workers_text(main)} of {name}", facts.step_thread_name),
        affected=fetches.slow_count,
        sure=_sure(facts, view),
        saves=Saves(share=why.saves, about=True, finds_out=why.finds_out),
    )


def _loader(facts: Facts, main: Loader) -> Params:
    have, usable = loaders.num_workers(main), usable_cpus(facts.run)
    known = bool(main.description.get("num_workers_known", True))
    return {
        "name": loaders.dataset_name(main),
        "workers": Count(have) if known else None,
        "one": have == 1 and known,
        "usable": Count(usable) if usable else None,
        "each_backward": loaders.many_for_a_backward(facts, main) if known else None,
    }


def _crowded_by_workers(facts: Facts) -> bool:
    """Whether the workers and the training thread are too many for the CPUs, and torch's own threads are not."""
    wants = cpus.demand(facts)
    too_many = wants.over_cpus and wants.threads <= 1
    return too_many and cpus.whose(wants, cpus.load_in_waits(facts)) == "oversubscribed"


@dataclass(frozen=True, slots=True)
class _Fetches:
    """Of the run's loaders with workers."""

    found: Sequence[Loader]
    late: Sequence[Loader]  # those of which a batch that is ready has only just come
    slow: float  # the wait, in ns, from which a ready batch was not delivered

    @classmethod
    def of(cls, facts: Facts, found: Sequence[Loader]) -> _Fetches:
        slow = loaders.slow_delivery_ns(facts)
        return cls(found, [v for v in found if loaders.mostly_starved(v, slow)], slow)

    def slow_ns_of(self, loader: Loader) -> int:
        return loaders.starved_ns(loader) + (loaders.ready_ns(loader) if loader in self.late else 0)

    @property
    def slow_ns(self) -> int:
        return sum(map(self.slow_ns_of, self.found))

    @property
    def slow_count(self) -> int:
        return self.empty + sum(map(loaders.ready_count, self.late))

    @property
    def total(self) -> int:
        return self.empty + sum(map(loaders.ready_count, self.found))

    @property
    def empty(self) -> int:
        """Found no batch ready."""
        return sum(map(loaders.starved_count, self.found))

    @property
    def empty_ns(self) -> int:
        return sum(map(loaders.starved_ns, self.found))

    @property
    def few_are_late(self) -> bool:
        """Few batches take nearly all of the wait: while the loop uses the others, they can be made ahead."""
        return 0 < 2 * self.empty < self.total and self.empty_ns >= limit("held_share") * self.slow_ns

    @property
    def between(self) -> int:
        """From one that takes long to the next; 0: all take alike."""
        return self.total // self.empty if self.few_are_late else 0

    def params(self) -> Params:
        """Of `late` also what the fetches took that found a batch ready."""
        unseen = self.empty > 0 and sum(v.fetches.ready.get(-1, 0) for v in self.found) == self.empty
        ready, took = sum(map(loaders.ready_count, self.late)), sum(map(loaders.ready_ns, self.late))
        computes = not self.empty and all(loaders.worker_view(v).computes for v in self.late)
        return {
            "total": Count(self.total),
            "unseen_each": Ns(self.empty_ns / self.empty) if unseen else None,
            "empty": Count(self.empty),
            "empty_each": Ns(self.empty_ns / self.empty) if self.empty and not unseen else None,
            "ready": Count(ready),
            "ready_each": Ns(took / ready) if ready else None,
            "just_made": bool(ready) and (computes or took >= self.slow * ready),
        }


def _seen(view: WorkerView) -> Params:
    """What is known of the workers."""
    if not view.read:
        return {"unread": True, "looked": view.looks > 0}
    if not view.told:
        return {"few_looks": Count(view.looks)}
    return {
        "count": Count(view.count),
        "cpu": Share(view.cpu_share),
        "slowest": Share(view.slowest),
        "running": Share(view.running),
        "looks": Count(view.looks),
        "several": view.count > 1,
    }


def _inside(facts: Facts, inside: Inside) -> Params:
    """The line that most of the workers' time goes to."""
    line = inside.main()
    if line is None:
        return {}
    return {
        "line_share": Share(line.count / inside.busy),
        "line": frames.label(line.frame, facts.base),
        "calls": line.calls or None,
        "spent": line.spent(),
    }


def _place(facts: Facts, inside: Inside) -> str:
    """Of that line, where it is the user's."""
    line = inside.main()
    return frames.place(line.frame, facts.base) if line is not None and frames.is_user_file(line.frame.file) else ""


def _sure(facts: Facts, view: WorkerView) -> Sure:
    if facts.of_trace:
        return Sure(doubts=(Said("workers_untraced"),))
    looks = Said("looks" if view.told else "few_looks", {"looks": Count(view.looks)})
    return Sure(level=facts.level if view.told else "low", doubts=(looks,))


@dataclass(frozen=True, slots=True)
class _Why:
    """Why workers cannot keep up, and what to do about it."""

    variant: str
    params: Params = field(default_factory=dict)
    saves: float = 1.0  # of what the loop waits for all loaders
    finds_out: bool = False  # the fix is to look again
    place: str = ""  # the user's file:line; "": where the dataset reads


def _slow(facts: Facts, main: Loader, view: WorkerView, fetches: _Fetches, cost: int) -> _Why:
    """Where they all are, by what they do. `cost`: of their waits, in ns."""
    have = loaders.num_workers(main)
    more = _More(main, fetches.between, _needed(facts, have, cost))
    if not view.told:
        known = bool(main.description.get("num_workers_known", True))
        fix = (Said("run_ahead" if fetches.few_are_late else "look_longer"), more.to(more.wider))
        lines = fix if known else (Said("more_than_now"),)
        return _Why("untraced" if facts.of_trace else "unseen", {"fix": lines}, finds_out=not fetches.few_are_late)
    if view.one_computes:
        # Even work takes the mean of it, while the rest of the loop runs, too.
        saves = min(1.0, facts.wall_ns * (1 - view.cpu_share / view.slowest) / max(1, cost))
        passes_on = main.description.get("in_order") is False
        return _Why("busiest", {"passes_on": passes_on, "any_order": _in_any_order(facts, main)}, saves)
    if lock := loaders.shared_lock(facts, main, have):
        # The workers then run at the same time.
        saves = min(1.0, facts.wall_ns * lock.share / max(1, cost))
        params: Params = {"locked": Share(lock.share), "lock_call": lock.call}
        at = places.file_lock_at(facts, loaders.dataset_file(main)) if lock.of_file else ""
        return _Why("file_locked" if lock.of_file else "locked", params, saves, place=at)
    if view.waits:
        call = more.to(more.wider, Said("waits_overlap"))
        return _Why("waiting", {"call": call, "few_are_late": fetches.few_are_late})
    room = _Room.of(facts, have, cost)
    params = {"made": Names((loaders.dataset_name(main), *loaders.collate_names(main, facts)))}
    why = _bound(facts, view, room, more) if view.computes else _partly(view, room, more)
    return _Why(why.variant, {**params, **room.params(), **why.params}, why.saves)


def _partly(view: WorkerView, room: _Room, more: _More) -> _Why:
    """They compute for a part of the time."""
    with_one_more = view.cpu_share * (room.have + 1) + room.training
    if room.in_vain or with_one_more + room.others > (room.cpus or math.inf):
        return _Why("partly_no_room", {"stop_others": with_one_more <= room.cpus})
    most = int((room.cpus - room.training - room.others) / view.cpu_share) if room.cpus else more.wider
    want = max(room.have + 1, min(more.wider, most))
    return _Why("partly", {"call": more.to(want)}, room.saves)


def _bound(facts: Facts, view: WorkerView, room: _Room, more: _More) -> _Why:
    """They compute all the time, or whenever they get a CPU."""
    short = view.short_of_cpu
    if short and (pinned := _pinned(facts, view)):
        return _Why("pinned", pinned, room.saves)
    if short and room.others:
        return _Why("crowded", {"threads": facts.torch_threads > 1})
    if room.cpus and room.cpus <= room.have + short:
        return _Why("all_cpus", {"short": short})
    if short:
        return _Why("kept_off")
    if room.in_vain or (room.others and room.cpus - 1 - room.others < room.have + 1):
        return _Why("no_room", {"stop_others": bool(room.others)})
    want = min(more.need, int(room.cpus - 1 - room.others)) if room.cpus else more.need
    note = Said("cpus_here") if room.cpus else None
    return _Why("computing", {"call": more.to(max(want, room.have + 1), note)}, room.saves)


def _pinned(facts: Facts, view: WorkerView) -> Params:
    """Where the workers share fewer CPUs than the training thread may use; else nothing."""
    own, step = workers_cpus(facts.run), in_force(facts.run)
    if not own or step is None or len(own) >= min(view.count, len(step.cpus)):
        return {}
    return {
        "have": Count(len(own)),
        "several_cpus": len(own) > 1,
        "possible": len(step.cpus),
        "allowed": Names(str(cpu) for cpu in sorted(own)[:8]),
    }


@dataclass(frozen=True, slots=True)
class _More:
    """More workers, as code."""

    main: Loader
    between: int  # batches from one that takes long to the next, which can be made meanwhile; 0: all take alike
    need: int  # workers that keep up

    @property
    def wider(self) -> int:
        return max(self.need, loaders.num_workers(self.main) + 1)

    def to(self, workers: int, note: Said | None = None) -> Said:
        ahead = None
        if self.between:
            prefetched = self.main.description.get("prefetch_factor")
            least = 2 * (prefetched if isinstance(prefetched, int) else 2)
            ahead = max(least, math.ceil(self.between / workers))
        return loaders.with_workers(self.main, workers, ahead=ahead, notes=[note])


def _needed(facts: Facts, have: int, cost: int) -> int:
    """Workers make one batch per (step / have): to hide the wait they must be faster by step / (step - wait)."""
    return math.ceil(have * facts.wall_ns / max(facts.wall_ns - cost, facts.wall_ns // 20))


@dataclass(frozen=True, slots=True)
class _Room:
    """For more workers."""

    have: int
    cpus: int  # usable; 0: not known
    training: float  # CPUs that this process uses beside its workers; one where it was not read
    others: float  # that processes use which are none of this run's, where that is enough to compete for
    saves: float  # of the cost, what more workers save at most
    in_vain: bool

    @classmethod
    def of(cls, facts: Facts, have: int, cost: int) -> _Room:
        wants, load = cpus.demand(facts), cpus.load(facts)
        saves = 1.0
        if load.known and wants.cpus:
            # The batches take as much of the CPUs as before, and the run can use no more than those that are free.
            _, free = cpus.free(wants, load)
            saves = min(1.0, facts.wall_ns * free / max(load.run + free, limit("free_cpus")) / cost)
        return cls(
            have=have,
            cpus=usable_cpus(facts.run),
            training=load.own if load.known else 1.0,
            others=load.others if load.known and load.others >= limit("competing_cpus") else 0.0,
            saves=saves,
            in_vain=facts.share(int(saves * cost)) < limit("least_share"),
        )

    def params(self) -> Params:
        return {"cpus": Count(self.cpus), "others": self.others or None}


def _in_any_order(facts: Facts, loader: Loader) -> Said | None:
    """A line of a fix; none where the loader does so, for a PyTorch that has no such option, or for a Trainer, which
    cannot be told."""
    its = arguments(facts.run.meta) and not own_loader(facts.run.meta)
    if facts.torch_version < (2, 6) or its or loader.description.get("in_order") is False:
        return None
    return Said("any_order", {"stream": loaders.is_stream(loader)})


# -- workers of one loader that have unlike work


def _unlike_work(facts: Facts, main: Loader, alike: Sequence[Loader]) -> _Why | None:
    """The loop waits for one of them, or for those whose part of a stream is the largest. None where it mostly waits
    for all of these loaders' workers, or it was not recorded for whom."""
    # As recorded: the facts' own have their sampler's share taken out.
    each = [facts.run.loaders[v.id] for v in (main, *alike)]
    count = loaders.num_workers(main)
    wall_ns, of = sum(v.fetches.wall_ns for v in each), sum(v.fetches.count for v in each)
    awaited = [a for v in each for a in v.fetches.awaited]
    alone = [a for a in awaited if a.worker >= 0 and a.reading >= count]
    ended = [a for a in awaited if a.reading < count]
    if count < 2:
        return None
    if _told(ended, wall_ns):
        return _unlike_parts(facts, main, ended, of)
    return _one_at_a_time(facts, main, alone, of) if _told(alone, wall_ns) else None


def _told(awaited: Sequence[Awaited], wall_ns: int) -> bool:
    enough = sum(a.count for a in awaited) >= limit("lone_fetches")
    return enough and sum(a.wait_ns for a in awaited) >= limit("half_share") * wall_ns


def _unlike_parts(facts: Facts, main: Loader, ended: Sequence[Awaited], of: int) -> _Why:
    lanes = _lanes(facts, main)
    fetches, wait_ns = sum(a.count for a in ended), sum(a.wait_ns for a in ended)
    # The rest of the loop overlaps with reading: even parts make these batches as many times faster, with it.
    rest = max(0, facts.wall_ns - _waited_ns(facts)) / max(1, of)
    lost = sum(
        min(a.wait_ns, (a.wait_ns + a.count * rest) * (1 - a.reading / lanes)) for a in ended if a.reading < lanes
    )
    left = sorted({a.reading for a in ended if a.wait_ns >= limit("felt_share") * wait_ns})
    params: Params = {
        **_lone(fetches, wait_ns, of),
        "left": Said("so_many" if left[0] == left[-1] else "from_to", {"fewest": left[0], "most": left[-1]}),
    }
    return _Why("unlike_parts", params, saves=lost / _waited_ns(facts))


def _one_at_a_time(facts: Facts, main: Loader, alone: Sequence[Awaited], of: int) -> _Why:
    fetches, wait_ns = sum(a.count for a in alone), sum(a.wait_ns for a in alone)
    top = max({a.worker for a in alone}, key=lambda w: sum(a.wait_ns for a in alone if a.worker == w))
    own, own_ns = sum(a.count for a in alone if a.worker == top), sum(a.wait_ns for a in alone if a.worker == top)
    params: Params = {**_lone(fetches, wait_ns, of), "any_order": _in_any_order(facts, main)}
    mostly = min(own / fetches, own_ns / wait_ns) >= limit("held_share")
    if mostly and own >= limit("lone_fetches"):
        # What makes it slow is in no measurement: its samples, its file, its disk.
        its: Params = {"own": Count(own), "worker": top, "stream": loaders.is_stream(main)}
        # A worker as fast as the others is not waited for.
        return _Why("one_worker", {**params, **its}, saves=wait_ns / _waited_ns(facts))
    set_to = main.description.get("prefetch_factor")
    ahead = min(_MOST_AHEAD, max(2 * (set_to if isinstance(set_to, int) else 2), math.ceil(of / fetches) + 1))
    further = ahead if not isinstance(set_to, int) or ahead > set_to else None
    saves = _spread_saves(facts, wait_ns, _lanes(facts, main)) / _waited_ns(facts)
    return _Why("long_batches", {**params, "ahead": further}, saves)


def _lone(fetches: int, wait_ns: int, of: int) -> Params:
    return {"lone": Count(fetches), "lone_each": Ns(wait_ns / fetches), "of": Count(of)}


def _spread_saves(facts: Facts, wait_ns: int, lanes: int) -> float:
    """What is saved at most, of waits for one worker, when so many share its work beside the rest of the loop."""
    rest = max(0, facts.wall_ns - _waited_ns(facts))
    return wait_ns - max(0.0, wait_ns / lanes - rest)


def _waited_ns(facts: Facts) -> int:
    """For all loaders with workers."""
    return sum(v.fetches.wall_ns for v in facts.run.loaders.values() if loaders.num_workers(v))


def _lanes(facts: Facts, main: Loader) -> int:
    """How many of its workers can work at a time: where they compute, no more than there are CPUs."""
    view, count = loaders.worker_view(main), loaders.num_workers(main)
    computes = not view.read or view.slowest >= limit("cpu_bound_share")
    return max(2, min(count, usable_cpus(facts.run) or count)) if computes else count


# -- batches that are ready


@rule("TP103", "ready-not-delivered", WARNS, needs=_NEEDS)
def ready_not_delivered(facts: Facts, limits: Limits) -> Outcome:
    """A batch was ready when it was asked for, and still took long to arrive."""
    slow = loaders.slow_delivery_ns(facts)
    late = [v for v in _ahead(facts, slow) if _delivery_ns(facts, v) >= slow]
    # Of a slow sampler, whose part is an estimate, what is left is not sure to be the delivery.
    if loaders.sampler_share(facts) >= limit("most_share"):
        return None
    if busy := facts.once(_by_busy_workers):
        return _handed_over_late(facts, busy, limits)
    if not late:
        return None
    waited, count = sum(map(loaders.ready_ns, late)), sum(map(loaders.ready_count, late))
    gil = _gil_ns(facts, late, limits)
    claims = loaders.spread(facts.cells("gil_wait", ["fetch"]), gil)
    rest = max(0, waited - sum(v.fetches.gil_wait_ns for v in late))
    claims |= loaders.spread(loaders.workers_cells(facts), rest)
    if facts.grade(sum(claims.values()), limits) is None:
        return None
    main = max(late, key=loaders.ready_ns)
    holders = facts.holders(["fetch"]) if not facts.off("gil_waits") else []
    holder = holders[0] if holders and gil >= limit("delivery_gil_share") * waited else None
    pinned = bool(main.description.get("pin_memory"))  # which without a device has no thread
    return Diagnosis(
        variant="gil" if holder is not None else "pinning" if pinned and facts.run.feeds_device else "queue",
        claim=Claim("gil_wait" if gil > limit("half_share") * waited else "data_wait", claims),
        params={
            "count": Count(count),
            "each": Ns(waited / count),
            "gil": Ns(gil) if gil else None,
            "waited": Ns(waited),
            "pinned": str(pinned),
            "name": loaders.dataset_name(main),
            **(_holds(facts, holder) if holder is not None else {}),
        },
        place=facts.where(holder.spot) if holder is not None else "",
        who=(holder.name if holder is not None else "", facts.step_thread_name),
        affected=min(facts.steps, count),
        sure=Sure(tier=facts.tier("gil_waits") if holder is not None else ""),
    )


def _handed_over_late(facts: Facts, found: Sequence[Loader], limits: Limits) -> Diagnosis | None:
    """By workers that keep up, but compute meanwhile."""
    claims = loaders.spread(loaders.workers_cells(facts), sum(map(_beyond_usual_ns, found)))
    if facts.grade(sum(claims.values()), limits) is None:
        return None
    main = max(found, key=loaders.ready_ns)
    view, name = loaders.worker_view(main), loaders.dataset_name(main)
    count = sum(map(loaders.ready_count, found))
    pinned, load = _pinned(facts, view), cpus.load(facts)
    # Else they would take CPUs from the training thread instead.
    roomy = load.known and cpus.free(cpus.demand(facts), load)[0] >= view.count
    return Diagnosis(
        variant="busy",
        claim=Claim("data_wait", claims),
        params={
            "count": Count(count),
            "each": Ns(sum(map(loaders.ready_ns, found)) / count),
            "workers": Count(view.count),
            "one": view.count == 1,
            "cpu": Share(view.cpu_share),
            "running": Share(view.running),
            "looks": Count(view.looks),
            "name": name,
            "made": Names((name, *loaders.collate_names(main, facts))),
            **pinned,
            "roomy": bool(pinned) and roomy,
            "tight": bool(pinned) and not roomy,
        },
        place=loaders.dataset_place(main, facts),
        who=(f"{loaders.workers_text(main)} of {name}", facts.step_thread_name),
        affected=min(facts.steps, count),
        sure=_sure(facts, view),
        saves=Saves(about=True),
    )


def _by_busy_workers(facts: Facts) -> list[Loader]:
    """Loaders whose ready batches come more slowly than usual, as their workers compute; none where a delivery is slow
    for another reason, or that costs too little."""
    slow = loaders.slow_delivery_ns(facts)
    ahead = _ahead(facts, slow)
    found = [v for v in ahead if loaders.late_by_workers(v, loaders.worker_view(v))]
    other = any(_delivery_ns(facts, v) >= slow for v in ahead if v not in found)
    cost = sum(map(_beyond_usual_ns, found))
    return [] if other or facts.grade(cost, WARNS) is None else found


def _delivery_ns(facts: Facts, loader: Loader) -> float:
    """Of a fetch that found a batch ready: the sampler draws the next batch's indices in the same call."""
    return loaders.ready_mean_ns(loader) * (1 - facts.once(loaders.seen_in_sampler))


def _beyond_usual_ns(loader: Loader) -> int:
    usual = loaders.ready_count(loader) * limit("ready_batch_ms") * 1e6
    return max(0, round(loaders.ready_ns(loader) - usual))


def _holds(facts: Facts, holder: Holder) -> Params:
    spot = holder.spot
    pins = spot is not None and any(_PINS.search(f.file) for f in spot.frames)
    return {
        "holder": Said("pin_thread") if pins else holder.said,
        "fix": Said("pin_less") if pins else in_a_process(holder),
        "at": facts.label(spot),
    }


def _ahead(facts: Facts, slow: float) -> list[Loader]:
    """Loaders that had batches ready, which had not only just come."""
    found = [v for v in loaders.with_workers_of(facts) if loaders.ready_count(v) > 0]
    return [v for v in found if not loaders.mostly_starved(v, slow)]


def _gil_ns(facts: Facts, late: Sequence[Loader], limits: Limits) -> int:
    """Of these fetches. A hog that is in the way everywhere is the GIL rules' to tell, with all of its cost."""
    in_fetch = sum(facts.cells("gil_wait", ["fetch"]).values())
    if facts.grade(facts.cause_ns("gil_wait") - in_fetch, limits) is not None:
        return 0
    return min(in_fetch, sum(v.fetches.gil_wait_ns for v in late))


@rule("TP105", "delivery-cost", Limits(limit("warn_share"), None), needs=_NEEDS)
def delivery_cost(facts: Facts, limits: Limits) -> Outcome:
    """Taking ready batches out of the workers' queue is a notable part of a short step. Said, never warned of."""
    slow = loaders.slow_delivery_ns(facts)
    busy = facts.once(_by_busy_workers)
    found = [v for v in _ahead(facts, slow) if _delivery_ns(facts, v) < slow or v in busy]
    beyond = sum(map(_beyond_usual_ns, busy))  # is TP103's
    spent = round(sum(_delivery_ns(facts, v) * loaders.ready_count(v) for v in found)) - beyond
    waits = loaders.workers_cells(facts)
    claims = loaders.spread(waits, spent)
    # Where it is most of a notable wait, what starts the workers is the rest of that.
    notable = waits if sum(claims.values()) >= limit("most_share") * sum(waits.values()) else claims
    if facts.grade(sum(notable.values()), limits) is None:
        return None
    count = sum(map(loaders.ready_count, found))
    return Diagnosis(
        variant="unpacking",
        severity="info",
        claim=Claim("data_wait", claims),
        params={
            "count": Count(count),
            "each": Ns(spent / count),
            "late": Ns(beyond / count) if beyond else None,
            "making": _making(found, spent / count),
        },
        affected=count,
    )


def _making(found: Sequence[Loader], taking_ns: float) -> Ns | None:
    """What a batch takes a worker of CPU, where that is much less than it takes to get it from there."""
    workers = [w for v in found for w in v.workers]
    batches = sum(v.fetches.count for v in found)
    if not all(loaders.worker_view(v).told for v in found) or any(w.cpu_share is None for w in workers):
        return None
    making_ns = 1e9 * sum((w.cpu_share or 0.0) * w.seconds for w in workers) / batches
    return Ns(making_ns) if making_ns <= limit("half_share") * taking_ns else None
